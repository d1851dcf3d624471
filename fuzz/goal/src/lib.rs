//! Any bytes through the readers of GOAL files. What is read must be whole: it is checked, written
//! in the binary form and read again as the same operations.

use std::slice;

use sluicegate_program::{check::check, goal};

/// Called by libFuzzer with each input.
///
/// # Safety
/// `data` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> i32 {
    let bytes = match size {
        0 => &[][..],
        // SAFETY: as the caller promises.
        _ => unsafe { slice::from_raw_parts(data, size) },
    };
    if let Ok(program) = goal::read(bytes) {
        let _ = check(&program, 0);
        let again =
            goal::read(&goal::binary::write(&program)[..]).expect("what is written is read");
        for (one, other) in program.ranks.iter().zip(&again.ranks) {
            assert_eq!(one.operations(), other.operations(), "broken: read again");
        }
        assert_eq!(program.ranks.len(), again.ranks.len(), "broken: ranks");
    }
    0
}
