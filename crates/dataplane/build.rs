//! Compiles the program that takes frames from an interface for its port (`src/xdp/attach.rs`).

fn main() {
    sluicegate_bpf_build::compile_programs(&[], Vec::new());
}
