//! Peers that agree, and those that do not.

use std::{io::Write, thread};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("a pair")
}

/// What a side says to a peer that does this.
fn reason(mode: Mode, peer: impl FnOnce(UnixStream) + Send + 'static) -> String {
    reason_of((mode, WITHOUT), peer)
}

fn reason_of((mode, side): (Mode, Side), peer: impl FnOnce(UnixStream) + Send + 'static) -> String {
    let (here, there) = pair();
    let peer = thread::spawn(move || peer(there));
    let failed = agree(&here, mode, Layout::default(), side).expect_err("they disagree");
    peer.join().expect("it ended");
    match failed {
        Failed::Because(reason) => reason,
        Failed::Silently => "silently".to_owned(),
    }
}

fn send(stream: &UnixStream, message: Message) {
    tell(stream, &message.bytes(""), None).expect("sent");
}

fn heard(stream: &UnixStream) -> (Message, Option<OwnedFd>) {
    hear(stream, Instant::now() + PATIENCE).expect("a message")
}

const HELLO_NOW: Message = Message {
    kind: HELLO,
    slots: 0,
    buffer: 0,
    takes: 0,
    pauses: 0,
};

/// A switch without `pfc`.
const WITHOUT: Side = with(0);

/// A switch with `pfc` for these priorities.
const fn with(lossless: u8) -> Side {
    Side {
        takes: Takes::ALL,
        pauses: Pauses::Switch(lossless),
    }
}

/// Offers this to a client, with this file.
fn offers(slots: u32, buffer: u32, file: Option<File>) -> String {
    reason(Mode::Client, move |stream| {
        heard(&stream);
        let offer = Message {
            kind: OFFER,
            slots,
            buffer,
            takes: 15,
            pauses: 0,
        };
        tell(&stream, &offer.bytes(""), file.as_ref()).expect("sent");
        let refused = hear(&stream, Instant::now() + PATIENCE).expect_err("a refusal");
        assert!(matches!(refused, Failed::Because(why) if why.contains("the peer refuses: ")));
    })
}

#[test]
fn both_sides_have_the_same_memory_and_know_what_the_other_takes() {
    let (server, client) = pair();
    let layout = Layout::new(128, 4096).expect("a layout");
    let takes = Takes {
        checksum: true,
        ..Takes::default()
    };
    let program = Side {
        takes,
        pauses: Pauses::Program,
    };
    let other = thread::spawn(move || {
        let agreed = agree(&client, Mode::Client, Layout::default(), program);
        agreed.expect("they agree").0
    });
    let (here, _) = agree(&server, Mode::Server, layout, WITHOUT).expect("they agree");
    let there = other.join().expect("it ended");
    assert_eq!((here.layout, there.layout), (layout, layout));
    assert_eq!((here.takes, there.takes), (takes, Takes::ALL));
    let word = |agreed: &Agreed| layout.words(&agreed.memory, 1).expect("words").offered;
    word(&here).store(0x1234);
    assert_eq!(word(&there).load(), 0x1234);
}

#[test]
fn a_server_says_what_is_wrong() {
    assert_eq!(reason(Mode::Server, drop), "silently");
    let garbage = |mut stream: UnixStream| stream.write_all(&[7; 128]).expect("sent");
    assert_eq!(
        reason(Mode::Server, garbage),
        "the peer speaks of something else"
    );
    let half = |mut stream: UnixStream| stream.write_all(&[7; 60]).expect("sent");
    assert_eq!(reason(Mode::Server, half), "the peer went within a message");
    let early = |stream: UnixStream| {
        send(
            &stream,
            Message {
                kind: READY,
                ..HELLO_NOW
            },
        )
    };
    assert_eq!(reason(Mode::Server, early), "a message that is out of turn");
    let other = |stream: UnixStream| {
        let mut bytes = HELLO_NOW.bytes("");
        bytes[8] = 9;
        tell(&stream, &bytes, None).expect("sent");
        let refused = hear(&stream, Instant::now() + PATIENCE).expect_err("a refusal");
        let Failed::Because(why) = refused else {
            panic!("a reason");
        };
        assert!(
            why.starts_with("the peer refuses: the peer has version 9"),
            "{why}"
        );
    };
    let why = reason(Mode::Server, other);
    assert_eq!(why, "the peer has version 9 of the cable, and this side 1");
    let refuses = |stream: UnixStream| {
        send(&stream, HELLO_NOW);
        heard(&stream);
        let refusal = Message {
            kind: REFUSAL,
            ..HELLO_NOW
        };
        tell(&stream, &refusal.bytes("no\nroom"), None).expect("sent");
    };
    assert_eq!(reason(Mode::Server, refuses), "the peer refuses: noroom");
}

/// What each side says of the two, first that of the server.
fn sides(server: Side, client: Side) -> [Option<String>; 2] {
    let (here, there) = pair();
    let side = |stream: UnixStream, mode, side| {
        thread::spawn(
            move || match agree(&stream, mode, Layout::default(), side) {
                Ok(_) => None,
                Err(Failed::Because(reason)) => Some(reason),
                Err(Failed::Silently) => Some("silently".to_owned()),
            },
        )
    };
    let both = [
        side(here, Mode::Server, server),
        side(there, Mode::Client, client),
    ];
    both.map(|side| side.join().expect("it ended"))
}

#[test]
fn switches_pause_for_the_same_priorities_and_say_which_side_has_what() {
    let program = Side {
        takes: Takes::ALL,
        pauses: Pauses::Program,
    };
    for (server, client) in [
        (WITHOUT, WITHOUT),
        (with(1 << 3), with(1 << 3)),
        (with(u8::MAX), program),
        (program, with(1)),
    ] {
        assert_eq!(sides(server, client), [None, None]);
    }
    for (server, client, told) in [
        (1 << 3, 3 << 3, "3 where it listens, 3 4 where it connects"),
        (0, 1, "none where it listens, 0 where it connects"),
        (
            0x7f,
            0xff,
            "0 1 2 3 4 5 6 where it listens, 0 1 2 3 4 5 6 7 where it connects",
        ),
    ] {
        let why = format!("pfc differs: priorities {told}");
        let refused = format!("the peer refuses: {why}");
        assert_eq!(
            sides(with(server), with(client)),
            [Some(why), Some(refused)]
        );
    }
}

#[test]
fn a_switch_with_pauses_tells_an_older_one_that_it_does_not_say() {
    let old = Side {
        takes: Takes::ALL,
        pauses: Pauses::Unsaid,
    };
    assert_eq!(sides(WITHOUT, old), [None, None]);
    assert_eq!(sides(old, WITHOUT), [None, None]);
    let why =
        "pfc on one side alone: the other, of an older version, does not say for which priorities";
    let refused = format!("the peer refuses: {why}");
    let [server, client] = sides(with(8), old);
    assert_eq!(
        (server.as_deref(), client),
        (Some(why), Some(refused.clone()))
    );
    // An older server, which compares nothing, has made its offer, and hears it in place of the
    // answer.
    let told = reason_of((Mode::Client, with(8)), move |stream| {
        heard(&stream);
        let layout = Layout::default();
        let offer = Message::new(OFFER, Some(layout), old);
        tell(&stream, &offer.bytes(""), layout.make().ok().as_ref()).expect("sent");
        let answer = hear(&stream, Instant::now() + PATIENCE).expect_err("a refusal");
        assert_eq!(answer, Failed::Because(refused));
    });
    assert_eq!(told, why);
}

#[test]
fn a_peer_that_says_nothing_or_drips_is_not_waited_for() {
    let start = Instant::now();
    let silent = |stream: UnixStream| {
        let (mut stream, until) = (stream, Instant::now() + 2 * PATIENCE);
        while Instant::now() < until && stream.write_all(&MAGIC[..1]).is_ok() {
            thread::sleep(Duration::from_millis(300));
        }
    };
    assert_eq!(reason(Mode::Server, silent), "the peer says nothing");
    assert!(start.elapsed() < 3 * PATIENCE);
}

#[test]
fn a_client_takes_no_memory_that_may_change_its_length() {
    let layout = Layout::default();
    let bytes = layout.bytes();
    let open = |length: u64| {
        let file = memfd_create("open", MemfdFlags::ALLOW_SEALING).expect("memfd");
        ftruncate(&file, length).expect("its length");
        Some(File::from(file))
    };
    assert_eq!(offers(1024, 2048, open(bytes)), "the memory is not sealed");
    assert_eq!(offers(1024, 2048, None), "the peer passes no memory");
    assert_eq!(offers(3, 2048, None), "a ring cannot have 3 buffers");
    assert_eq!(offers(1024, 0, None), "a buffer cannot have 0 bytes");
    let short = Layout::new(64, 2048)
        .expect("a layout")
        .make()
        .expect("a file");
    assert!(offers(1024, 2048, Some(short)).ends_with(&format!("not {bytes}")));
    let socket = File::from(OwnedFd::from(pair().0));
    assert_eq!(
        offers(1024, 2048, Some(socket)),
        "the memory cannot be sealed"
    );
}
