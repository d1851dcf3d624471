//! Compiles the kernel programs, which modules embed with `include_object!`.

fn main() {
    sluicegate_bpf_build::compile_programs(&["../core/c"], Vec::new());
}
