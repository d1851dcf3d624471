use pcap_parser::{Block, PcapBlockOwned, PcapNGReader, traits::PcapReaderIterator};
use rtrb::{Consumer, RingBuffer};

use super::*;
use crate::{frame::Frame, memory::Memory};

const MAC: Mac = [2, 0, 0, 0, 0, 1];
const OTHER: Mac = [2, 0, 0, 0, 0, 2];

/// The start of a frame of this type, behind tags, with bytes at a place of its packet.
fn start(tags: &[u16], kind: u16, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = [OTHER, MAC].concat();
    for tag in tags {
        frame.extend([tag.to_be_bytes(), [0, 7]].concat());
    }
    frame.extend(kind.to_be_bytes());
    frame.resize(frame.len() + at, 0);
    frame.extend(bytes);
    frame
}

#[test]
fn a_filter_knows_both_ends_of_frames_and_packets() {
    let of = |mac: Option<Mac>, address: Option<&str>| Filter {
        mac,
        address: address.map(|it| it.parse().expect("an address")),
    };
    let any = start(&[], 0x88b5, 0, &[]);
    assert!(of(None, None).lets(&any));
    assert!(of(Some(MAC), None).lets(&any) && of(Some(OTHER), None).lets(&any));
    assert!(!of(Some([2, 0, 0, 0, 0, 3]), None).lets(&any));
    let (v4, v6) = ("10.0.0.9", "2001:db8::9");
    let octets = [10, 0, 0, 9];
    let long: [u8; 16] = v6.parse::<std::net::Ipv6Addr>().expect("one").octets();
    for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
        for (kind, at) in [(IPV4, 12), (IPV4, 16), (ARP, 14), (ARP, 24)] {
            let frame = start(tags, kind, at, &octets);
            assert!(of(None, Some(v4)).lets(&frame), "{tags:?} {kind:x} {at}");
            assert!(of(Some(MAC), Some(v4)).lets(&frame));
            assert!(!of(Some([9; 6]), Some(v4)).lets(&frame));
            assert!(!of(None, Some("10.0.0.8")).lets(&frame));
            assert!(!of(None, Some(v6)).lets(&frame));
            assert!(!of(None, Some(v4)).lets(&frame[..frame.len() - 1]));
        }
        for at in [8, 24] {
            let frame = start(tags, IPV6, at, &long);
            assert!(of(None, Some(v6)).lets(&frame));
            assert!(!of(None, Some("2001:db8::8")).lets(&frame));
        }
        // The address is there, and is none.
        assert!(!of(None, Some(v4)).lets(&start(tags, IPV4, 13, &octets)));
        assert!(!of(None, Some(v4)).lets(&start(tags, 0x88b5, 12, &octets)));
    }
    let (of_v4, tags) = (of(None, Some(v4)), [0x8100; 40]);
    assert!(!of_v4.lets(&start(&tags, IPV4, 12, &octets)[..138]));
    assert!(!of_v4.lets(&any[..13]));
}

fn tap(asked: &Asked, room: usize) -> (Tap, Consumer<u8>) {
    let (ring, records) = RingBuffer::new(room);
    let ports = [(0, "a"), (3, "b")].into_iter();
    (Tap::new(asked, ports, ring).expect("a capture"), records)
}

/// Shows a frame of so many bytes.
fn shared(tap: Tap) -> Arc<Mutex<Tap>> {
    Arc::new(Mutex::new(tap))
}

fn show(taps: &mut Taps, number: u16, point: Point, bytes: usize) {
    let (mut frame, memory) = (Frame::default(), Memory::default());
    let content: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
    frame.set_own(&content);
    let mut seen = Seen::delivered(Outgoing::new(&frame, frame.start(), 0, &memory));
    seen.point = point;
    taps.see(number, &seen);
}

/// Interface and bytes of each frame in a file, and what is counted of each interface.
fn read(records: &mut Consumer<u8>) -> (Vec<(u32, Vec<u8>)>, Vec<Tally>) {
    let mut bytes = vec![0; records.slots()];
    records.pop_entire_slice(&mut bytes).expect("all of it");
    let mut reader = PcapNGReader::new(1 << 20, &bytes[..]).expect("a file");
    let (mut frames, mut tallies) = (Vec::new(), Vec::new());
    while let Ok((length, block)) = reader.next() {
        match block {
            PcapBlockOwned::NG(Block::EnhancedPacket(it)) => {
                frames.push((it.if_id, it.data[..it.caplen as usize].to_vec()));
            }
            PcapBlockOwned::NG(Block::InterfaceStatistics(it)) => {
                let count = |at: usize| it.options[at].as_u64_le().expect("a count");
                tallies.push(Tally {
                    wanted: count(0),
                    lost: count(1),
                });
            }
            _ => {}
        }
        reader.consume(length);
    }
    (frames, tallies)
}

#[test]
fn only_chosen_points_are_seen_and_no_port_that_takes_a_number_later() {
    let asked = Asked {
        ports: vec!["b".to_owned()],
        points: vec![Point::Out, Point::Drop],
        snaplen: 20,
        ..Asked::default()
    };
    let (tap, mut records) = tap(&asked, 4096);
    let mut taps = Taps::default();
    let tap = shared(tap);
    taps.add(&tap).expect("room");
    for number in 0..5 {
        for (point, bytes) in Point::ALL.into_iter().zip([60, 200, 18]) {
            show(&mut taps, number, point, bytes);
        }
    }
    taps.forget(3);
    taps.forget(4000);
    show(&mut taps, 3, Point::Out, 60);
    assert!(!taps.remove(&tap), "no other one runs");
    show(&mut taps, 1, Point::Out, 60);
    let tap = Arc::into_inner(tap).expect("nobody else has it");
    let tap = tap.into_inner().expect("nobody panicked");
    tap.finish().expect("room");
    let (frames, tallies) = read(&mut records);
    let bytes = |count: u8| (0..count).collect::<Vec<u8>>();
    assert_eq!(frames, [(0, bytes(20)), (1, bytes(18))]);
    assert_eq!(tallies, [Tally { wanted: 1, lost: 0 }; 2]);
}

#[test]
fn what_finds_no_room_is_counted_and_what_comes_after_the_last_is_not() {
    let asked = Asked {
        points: vec![Point::In],
        count: Some(5),
        ..Asked::default()
    };
    let (tap, mut records) = tap(&asked, 1500);
    let is_complete = Arc::clone(tap.is_complete());
    let mut taps = Taps::default();
    let tap = shared(tap);
    taps.add(&tap).expect("room");
    for _ in 0..10 {
        show(&mut taps, 0, Point::In, 500);
    }
    assert!(!is_complete.load(Ordering::Acquire));
    assert_eq!(read(&mut records).0.len(), 2);
    // Frames that fit pass those that do not.
    for bytes in [2000, 60, 60, 60, 60, 60] {
        show(&mut taps, 3, Point::In, bytes);
    }
    assert!(is_complete.load(Ordering::Acquire));
    let tap = tap.lock().expect("nobody panicked");
    assert_eq!(
        tap.tallies[0],
        Tally {
            wanted: 10,
            lost: 8
        }
    );
    assert_eq!(tap.tallies[1], Tally { wanted: 4, lost: 1 });
}

#[test]
fn what_makes_no_sense_is_refused_and_captures_are_bounded() {
    let refused = |asked: Asked| {
        let (ring, _records) = RingBuffer::new(4096);
        let made = Tap::new(&asked, [(0, "a")].into_iter(), ring);
        made.err().expect("no capture").to_string()
    };
    let asked = Asked::default;
    let nothing = refused(Asked {
        snaplen: 0,
        ..asked()
    });
    assert!(nothing.contains("keeps nothing"), "{nothing}");
    let none = Some(0);
    let none = refused(Asked {
        count: none,
        ..asked()
    });
    assert!(none.contains("0 frames"), "{none}");
    let mac = Some("52:54:00".to_owned());
    let mac = refused(Asked { mac, ..asked() });
    assert!(mac.contains("write six bytes"), "{mac}");
    let mut taps = Taps::default();
    for _ in 0..CAPTURES_MAX {
        taps.add(&shared(tap(&asked(), 4096).0)).expect("one more");
    }
    let one_more = shared(tap(&asked(), 4096).0);
    assert!(taps.add(&one_more).is_err());
}
