//! Layouts of TCP options as stacks send them: hosts recognise each other through all of them.
