//! Memory of guests: regions, pieces, and files that shrink.

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;

fn file(bytes: u64) -> File {
    let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd"));
    ftruncate(&file, bytes).expect("its length");
    file
}

fn memory(file: File, bytes: u64) -> Memory {
    let region = Region::map(0x10000, 0x7000_0000, bytes, file, 0).expect("a region");
    Memory::new(vec![Arc::new(region)]).expect("a memory")
}

#[test]
fn a_piece_lies_within_one_region() {
    let memory = memory(file(8192), 8192);
    assert!(memory.guest(0x10000, 8192).is_some());
    assert!(memory.guest(0x11fff, 1).is_some());
    assert_eq!(memory.guest(0x11fff, 2), None);
    assert_eq!(memory.guest(0xffff, 1), None);
    assert_eq!(memory.guest(u64::MAX, 2), None);
    assert_eq!(memory.user(0x7000_0010, 4), memory.guest(0x10010, 4));
}

#[test]
fn bytes_are_copied_between_pieces() {
    let memory = memory(file(4096), 4096);
    let (left, right) = (memory.guest(0x10000, 8), memory.guest(0x10100, 16));
    let (left, right) = (left.expect("left"), right.expect("right"));
    memory.write(left, b"lossless");
    memory.copy(right, &memory, left);
    let mut bytes = [0; 8];
    memory.read(right, &mut bytes);
    assert_eq!(&bytes, b"lossless");
}

/// An access to it may wait for a disk, or for the process behind a file system.
#[test]
fn a_file_that_is_no_memory_is_refused() {
    let program = File::open("/proc/self/exe").expect("this program, on a disk");
    let refused = Region::map(0, 0, 4096, program, 0).expect_err("no memory");
    assert!(refused.0.contains("neither a memfd nor"), "{}", refused.0);
    Region::map(0, 0, 4096, file(4096), 0).expect("a memfd");
}

#[test]
fn regions_that_overlap_or_are_longer_than_their_file_are_refused() {
    assert!(Region::map(0, 0, 8192, file(4096), 0).is_err());
    assert!(Region::map(u64::MAX - 10, 0, 4096, file(4096), 0).is_err());
    let at = |guest| Arc::new(Region::map(guest, 0, 4096, file(4096), 0).expect("a region"));
    assert!(Memory::new(vec![at(0), at(4096)]).is_ok());
    assert!(Memory::new(vec![at(0), at(4095)]).is_err());
}

#[test]
fn a_log_has_a_bit_for_each_page_that_it_has_room_for() {
    let file = file(4096);
    let log = Log::map(4096, file.try_clone().expect("a handle"), 0).expect("a log");
    log.mark(4096 * 9 + 4000, 97);
    log.mark(4096 * 16, 0);
    log.mark(4096 * (8 * 4096 - 1), 1 << 40);
    log.mark(u64::MAX, 2);
    let mut bytes = vec![0; 4096];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).expect("read");
    let mut expected = vec![0; 4096];
    (expected[1], expected[2], expected[4095]) = (0b110, 1, 0x80);
    assert_eq!(bytes, expected);
}

/// The length of each range is its start, so that a mixture of two is seen.
#[test]
fn a_guarded_range_is_read_as_a_whole() {
    static ENTRY: guard::Entry = guard::Entry::free();
    let writer = std::thread::spawn(|| {
        for round in 0..2_000_000usize {
            let range = 4096 * (round % 7);
            ENTRY.set(range, range);
        }
    });
    let mut seen = 0;
    while !writer.is_finished() || seen == 0 {
        if let Some((start, bytes)) = ENTRY.range() {
            assert_eq!(start, bytes);
            seen += 1;
        }
    }
    writer.join().expect("it ends");
}

#[test]
fn a_file_that_shrinks_breaks_its_memory_alone() {
    let (shrinks, stays) = (file(8192), file(8192));
    let handle = shrinks.try_clone().expect("a second handle");
    let (shrinks, stays) = (memory(shrinks, 8192), memory(stays, 8192));
    ftruncate(&handle, 0).expect("shrink");
    let piece = shrinks.guest(0x11000, 4).expect("a piece");
    let mut bytes = [1; 4];
    shrinks.read(piece, &mut bytes);
    assert_eq!(bytes, [0; 4]);
    assert!(shrinks.is_broken());
    assert!(!stays.is_broken());
}
