//! The log of a migration: every page that the switch has written.

use std::{fs::File, os::unix::fs::FileExt};

use common::{Bench, GUEST, Guest, PLAIN, SIZE, frame, introduce, mac, number, until};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::common;

const PAGE: usize = 4096;

fn bytes(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().expect("its length").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}

/// Sends frames to a guest, and returns the pages of its memory that only the switch writes: those
/// that have changed, and those that the log has.
fn pages(a: &mut Guest, b: &mut Guest, log: &File) -> (Vec<usize>, Vec<usize>) {
    let before = bytes(&b.file);
    log.write_all_at(&bytes(log).iter().map(|_| 0).collect::<Vec<u8>>(), 0)
        .expect("a clear log");
    for number in 0..20 {
        until("room", || a.send(&frame(mac(2), mac(1), number, 1000)));
        assert_eq!(common::number(&b.expect()), (1, number));
        until("room", || b.send(&frame(mac(1), mac(2), number, 60)));
        assert_eq!(common::number(&a.expect()), (2, number));
    }
    until("all taken", || b.room() == usize::from(SIZE));
    let (after, log) = (bytes(&b.file), bytes(log));
    let buffers = b.buffer(0, 0) as usize..b.buffer(1, 0) as usize;
    let used = [0x6000, 0xe000].map(|at| at..at + 6 + 8 * usize::from(SIZE));
    let of_switch = |page: &usize| {
        let at = page * PAGE;
        buffers.contains(&at) || used.iter().any(|used| used.contains(&at))
    };
    let all = || (0..after.len() / PAGE).filter(of_switch);
    let part = |page: usize| page * PAGE..(page + 1) * PAGE;
    let changed = all().filter(|&page| before[part(page)] != after[part(page)]);
    let has_bit = |page: &usize| {
        let bit = GUEST as usize / PAGE + page;
        log[bit / 8] & 1 << (bit % 8) != 0
    };
    (changed.collect(), all().filter(has_bit).collect())
}

#[test]
fn every_page_that_changes_is_in_the_log_of_a_migration() {
    let bench = Bench::new("", &[("a", ""), ("b", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let log = File::from(memfd_create("log", MemfdFlags::CLOEXEC).expect("memfd"));
    ftruncate(&log, PAGE as u64).expect("its length");
    b.log(PLAIN, &log);
    let (changed, logged) = pages(&mut a, &mut b, &log);
    // 20 frames lie in 10 pages of buffers; both used rings have one page.
    assert!(changed.len() >= 12, "{changed:?}");
    let missing = changed.iter().filter(|page| !logged.contains(page));
    assert_eq!(missing.count(), 0, "{changed:?}, logged {logged:?}");
    assert!(logged.len() <= changed.len() + 2, "{logged:?}");
    // The log is in force in a memory that is shared anew, and ends with the feature.
    use vhost::VhostBackend;
    b.frontend
        .set_mem_table(&[Guest::region(&b.file)])
        .expect("memory");
    b.frontend.get_features().expect("all was done");
    let (changed, logged) = pages(&mut a, &mut b, &log);
    assert!(changed.iter().all(|page| logged.contains(page)));
    b.frontend.set_features(PLAIN).expect("features");
    b.frontend.get_features().expect("all was done");
    let (_, logged) = pages(&mut a, &mut b, &log);
    let buffers = b.buffer(0, 0) as usize / PAGE;
    assert!(logged.iter().all(|&page| page < buffers), "{logged:?}");
    assert!(a.send(&frame(mac(2), mac(1), 99, 60)));
    assert_eq!(number(&b.expect()), (1, 99));
}
