//! The kernel programs and their loading: enforcement on a live host
