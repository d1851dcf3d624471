//! Queues and wires.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Plain {
    bytes: u32,
    ect: bool,
    ce: bool,
}

impl Frame for Plain {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn is_ect(&self) -> bool {
        self.ect
    }
    fn mark(&mut self) {
        self.ce = true;
    }
}

/// One port.
struct Link(Ports<Plain>);

const PORT: PortId = PortId(0);

fn config(limit_bytes: u64, aqm: AqmParams) -> PortConfig {
    PortConfig {
        rate_bps: 10_000_000_000,
        delay_ps: 1_000_000,
        limit_bytes,
        aqm,
        jitter_ps: 0,
        jitter_mean_ps: 0,
        burst_ps: 0,
        overhead_bytes: 0,
    }
}

impl Link {
    fn new(limit_bytes: u64, aqm: AqmParams) -> Self {
        Self::of(config(limit_bytes, aqm))
    }

    fn of(config: PortConfig) -> Self {
        let mut ports = Ports::default();
        ports.add(config, 1);
        Self(ports)
    }

    fn offer(&mut self, now_ps: u64, bytes: u32) -> (u64, Offer) {
        let frame = self.0.pool.insert(Plain {
            bytes,
            ect: true,
            ce: false,
        });
        let backlog = self.backlog(now_ps);
        let offer = self.0.offer(PORT, now_ps, frame);
        if let Offer::Dropped(_) = offer {
            self.0.pool.release(frame);
        }
        (backlog, offer)
    }

    fn arrive(&mut self) -> Option<(Plain, Option<u64>)> {
        self.arrive_by(u64::MAX)
    }

    fn arrive_by(&mut self, now_ps: u64) -> Option<(Plain, Option<u64>)> {
        let (frame, next) = self.0.arrive(PORT, now_ps)?;
        let plain = self.0.pool[frame];
        self.0.pool.release(frame);
        Some((plain, next))
    }

    fn backlog(&mut self, now_ps: u64) -> u64 {
        self.0.backlog_bytes(PORT, now_ps)
    }
}

#[test]
fn frames_leave_one_after_the_other_and_arrive_a_delay_later() {
    let mut link = Link::new(1 << 20, AqmParams::default());
    assert_eq!(link.offer(0, 1250), (0, Offer::First(2_000_000)));
    assert_eq!(link.offer(0, 1250), (1250, Offer::Queued));
    assert_eq!(link.0.free_ps(PORT), 2_000_000);
    assert_eq!(link.arrive().unwrap().1, Some(3_000_000));
    assert_eq!(link.arrive().unwrap().1, None);
    assert!(link.arrive().is_none());
    assert!(link.0.pool.is_empty());
}

#[test]
fn the_backlog_falls_as_frames_leave_not_as_they_arrive() {
    let mut link = Link::new(1 << 20, AqmParams::default());
    link.offer(0, 1250);
    link.offer(0, 1250);
    assert_eq!(link.backlog(999_999), 2500);
    assert_eq!(link.backlog(1_000_000), 1250);
    assert_eq!(link.backlog(2_000_000), 0);
    assert_eq!(link.0.underway(PORT), 2);
    link.arrive();
    assert_eq!(link.offer(2_000_000, 1250), (0, Offer::Queued));
    link.arrive();
    link.arrive();
    assert_eq!(link.backlog(9_000_000), 0);
}

#[test]
fn a_full_queue_drops_and_a_threshold_marks_what_it_can() {
    let threshold = sluicegate_core::aqm::Aqm::Threshold {
        k_bytes: 1000,
        drop_not_ect: false,
    };
    let aqm = AqmParams::new(threshold, 10_000_000_000, 1500).unwrap();
    let mut link = Link::new(3000, aqm);
    link.offer(0, 1400);
    link.offer(0, 1400);
    assert_eq!(link.offer(0, 1400).1, Offer::Dropped(Drop::Tail));
    assert!(!link.arrive().unwrap().0.ce, "met an empty queue");
    assert!(link.arrive().unwrap().0.ce, "met 1400 bytes");
    assert_eq!(link.0.stats(PORT).marks, 1);
    assert_eq!(link.0.stats(PORT).drops, [1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn what_a_token_bucket_has_saved_leaves_at_once_and_in_order() {
    let mut link = Link::of(PortConfig {
        // Three frames of 1250 bytes.
        burst_ps: 3_000_000,
        ..config(1 << 20, AqmParams::default())
    });
    let at = 10_000_000;
    assert_eq!(link.offer(at, 1250), (0, Offer::First(at + 1_000_000)));
    for waiting in [0, 0, 0, 1250] {
        assert_eq!(link.offer(at, 1250), (waiting, Offer::Queued));
    }
    let nexts: Vec<_> = std::iter::from_fn(|| link.arrive().map(|(_, next)| next)).collect();
    assert_eq!(nexts[..4], [1, 1, 2, 3].map(|us| Some(at + us * 1_000_000)));
}

#[test]
fn late_frames_of_a_token_bucket_keep_their_order() {
    let mut link = Link::of(PortConfig {
        burst_ps: 100_000_000,
        jitter_mean_ps: 5_000_000,
        ..config(1 << 20, AqmParams::default())
    });
    for n in 0..1000 {
        link.offer(n * 2_000_000, 125);
    }
    let mut before = 0;
    while let Some((_, next)) = link.arrive() {
        assert!(next.is_none_or(|next| next >= before));
        before = next.unwrap_or(before);
    }
    assert!(before > 2_000_000_000, "{before}");
}

#[test]
fn a_link_that_goes_down_loses_what_is_underway() {
    let mut link = Link::new(1 << 20, AqmParams::default());
    link.offer(0, 1250);
    link.0.set_up(PORT, false, 500_000);
    assert_eq!(link.offer(600_000, 100).1, Offer::Dropped(Drop::Down));
    assert!(link.arrive().is_none());
    link.0.set_up(PORT, true, 700_000);
    assert_eq!(link.offer(700_000, 1250), (0, Offer::First(2_700_000)));
    assert_eq!(link.0.stats(PORT).drops[Drop::Down as usize], 2);
}

#[test]
fn two_halves_of_a_link_do_what_one_does() {
    let aqm = AqmParams::default();
    let (mut whole, mut near, mut far) = (
        Link::new(4000, aqm),
        Link::new(4000, aqm),
        Link::new(4000, aqm),
    );
    near.0.set_away(PORT);
    let mut first = None;
    for (now_ps, bytes) in [
        (0, 1250),
        (10, 1250),
        (20, 1250),
        (30, 1250),
        (1_000_001, 900),
    ] {
        let (backlog, offer) = whole.offer(now_ps, bytes);
        let (same, away) = near.offer(now_ps, bytes);
        assert_eq!(backlog, same);
        match away {
            Offer::Away(arrival_ps) => {
                let frame = far.0.pool.insert(Plain {
                    bytes,
                    ect: true,
                    ce: false,
                });
                let is_first = far.0.deliver(PORT, frame, arrival_ps);
                first = first.or(is_first.then_some(arrival_ps));
                assert_eq!(is_first, matches!(offer, Offer::First(_)));
            }
            other => assert_eq!(other, offer),
        }
    }
    assert_eq!(first, Some(2_000_000));
    assert_eq!(near.0.pool.len(), 3, "what has left is forgotten");
    assert_eq!((near.0.underway(PORT), far.0.underway(PORT)), (0, 4));
    while let Some(arrived) = whole.arrive() {
        assert_eq!(far.arrive(), Some(arrived));
    }
    assert_eq!(far.arrive(), None);
}

#[test]
fn what_is_lost_between_two_halves_is_counted_once() {
    let aqm = AqmParams::default();
    let (mut near, mut far) = (Link::new(4000, aqm), Link::new(4000, aqm));
    near.0.set_away(PORT);
    let (_, Offer::Away(arrival_ps)) = near.offer(0, 1250) else {
        panic!("it leaves");
    };
    let frame = far.0.pool.insert(Plain {
        bytes: 1250,
        ect: true,
        ce: false,
    });
    far.0.deliver(PORT, frame, arrival_ps);
    near.0.set_up(PORT, false, 100);
    far.0.set_up(PORT, false, 100);
    let down = |link: &Link| link.0.stats(PORT).drops[Drop::Down as usize];
    assert_eq!((down(&near), down(&far)), (0, 1));
    assert!(near.0.pool.is_empty() && far.0.pool.is_empty());
}

#[test]
fn a_timer_from_before_the_link_went_down_finds_nothing() {
    let mut link = Link::new(1 << 20, AqmParams::default());
    assert_eq!(link.offer(0, 1250).1, Offer::First(2_000_000));
    link.0.set_up(PORT, false, 300_000);
    link.0.set_up(PORT, true, 400_000);
    // Down and up within the time of flight of what was lost; the timer for 2 000 000 is still set.
    assert_eq!(link.offer(500_000, 1250).1, Offer::First(2_500_000));
    assert!(link.arrive_by(2_000_000).is_none());
    assert!(link.arrive_by(2_500_000).is_some());
    assert!(link.0.pool.is_empty());
}

#[test]
fn a_late_frame_is_under_way_until_it_is_due_or_the_link_goes_down() {
    let mut link = Link::new(1 << 20, AqmParams::default());
    link.0.set_impairment(
        PORT,
        Impairment {
            reorder_rate: 1.0,
            reorder_delay_ps: 1_000_000,
            ..Impairment::default()
        },
    );
    for _ in 0..2 {
        link.offer(0, 1250);
        let (frame, _) = link.0.arrive(PORT, u64::MAX).unwrap();
        let fate = link.0.fate(PORT, 3_000_000, frame);
        assert!(matches!(
            fate,
            Fate::Arrives {
                late_ps: Some(_),
                ..
            }
        ));
    }
    assert_eq!(link.0.underway(PORT), 2);
    let frame = link.0.late(PORT, 4_000_000).unwrap();
    link.0.pool.release(frame);
    link.0.set_up(PORT, false, 4_000_000);
    assert_eq!(link.0.underway(PORT), 0);
    assert_eq!(link.0.stats(PORT).drops[Drop::Down as usize], 1);
    assert!(link.0.pool.is_empty());
}

#[test]
fn ports_that_share_a_memory_leave_one_another_room() {
    let mut link = Link::new(1 << 20, AqmParams::default());
    let config = link.0.classes[0].config;
    let other = link.0.add(config, 2);
    let memory = link.0.add_memory(SharedMemory {
        limit_bytes: 9_000,
        alpha: Some(2.0),
    });
    link.0.share(PORT, memory);
    link.0.share(other, memory);
    let mut offers = |port, now_ps, count| {
        let taken = |_: &i32| {
            let frame = link.0.pool.insert(Plain {
                bytes: 1_000,
                ect: true,
                ce: false,
            });
            link.0.offer(port, now_ps, frame) != Offer::Dropped(Drop::Buffer)
        };
        (0..count).filter(taken).count()
    };
    assert_eq!(offers(PORT, 0, 20), 6, "α / (1 + α) of the memory");
    assert_eq!(offers(other, 0, 20), 2, "α times the rest");
    // At 10 Gb/s a frame takes 800 ns: both have sent one, 3000 bytes are free.
    assert_eq!(offers(other, 800_000, 20), 2);
}

#[test]
fn the_audit_finds_a_port_that_sends_more_than_its_rate() {
    let mut link = Link::new(1_000_000, AqmParams::default());
    for _ in 0..20 {
        link.offer(0, 65_535);
    }
    assert_eq!(link.0.audit(PORT), Ok(()));
    // 15 frames of 65535 bytes fit into the queue, each takes 52.428 us.
    link.0.hot[PORT.index()].free_ps -= 1_000;
    let error = link.0.audit(PORT).unwrap_err();
    assert!(error.contains("port 0 has sent 983025 bytes"), "{error}");
}

#[test]
fn rates_that_change_and_links_that_fail_are_accounted_for() {
    let mut link = Link::new(1_000_000, AqmParams::default());
    let frame_ps = 1_000 * 800;
    link.offer(0, 1_000);
    link.offer(0, 1_000);
    // The two frames keep their times; a third takes ten times as long.
    link.0.set_rate(PORT, 1_000_000_000, 100);
    link.offer(200, 1_000);
    assert_eq!(link.0.free_ps(PORT), 12 * frame_ps);
    assert_eq!(link.0.audit(PORT), Ok(()));
    link.0.set_rate(PORT, 100_000_000_000, 12 * frame_ps);
    link.offer(20 * frame_ps, 1_000);
    assert_eq!(link.0.audit(PORT), Ok(()));
    // What a failure loses is not sent.
    link.0.set_up(PORT, false, 20 * frame_ps);
    link.0.set_up(PORT, true, 21 * frame_ps);
    link.offer(21 * frame_ps, 1_000);
    assert_eq!(link.0.audit(PORT), Ok(()));
    // A period that was wrong is remembered.
    link.0.hot[PORT.index()].free_ps = 20 * frame_ps;
    link.0.set_rate(PORT, 10_000_000_000, 30 * frame_ps);
    link.offer(40 * frame_ps, 1_000);
    assert!(link.0.audit(PORT).is_err());
}

#[test]
fn a_queue_of_more_than_4_gb_counts_its_bytes() {
    let mut link = Link::new(u64::MAX, AqmParams::default());
    for _ in 0..33_000 {
        link.offer(0, 131_071);
    }
    assert_eq!(link.0.backlog_bytes(PORT, 0), 33_000 * 131_071);
    assert_eq!(link.0.audit(PORT), Ok(()));
}
