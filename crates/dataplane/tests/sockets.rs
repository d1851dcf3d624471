//! Sockets, interfaces and files that outlive a switch, or that others may use.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{
    Bench, PLAIN, frame, introduce, mac, number,
    spaces::{Spaces, ip},
    until,
};
use rustix::{process::Gid, process::Uid, thread as this_thread};
use sluicegate_dataplane::{config::Config, control, service::Service};

use crate::common;

/// Connects as a user without any right; needs root.
fn connect_as(id: u32, path: &Path) -> std::io::Result<()> {
    let path = path.to_owned();
    let thread = thread::spawn(move || {
        let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
        this_thread::set_thread_groups(&[]).expect("root");
        this_thread::set_thread_res_gid(group, group, group).expect("root");
        this_thread::set_thread_res_uid(user, user, user).expect("root");
        UnixStream::connect(path).map(drop)
    });
    thread.join().expect("it ran")
}

#[test]
fn a_hypervisor_of_another_user_connects_where_the_file_says_so() {
    let keys = "socket_group = \"65534\"";
    let bench = Bench::new("", &[("ours", ""), ("theirs", keys)]);
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&bench.directory, open).expect("the owner");
    let socket = |name: &str| bench.directory.join(format!("{name}.sock"));
    connect_as(65534, &socket("theirs")).expect("its group may");
    connect_as(65534, &socket("ours")).expect_err("no right");
    connect_as(65533, &socket("theirs")).expect_err("another group");
    // A reload opens the other one to all, and leaves its socket as it is.
    let text = bench
        .text()
        .replace("[switch]\n", "[switch]\nsocket_mode = \"0666\"\n");
    let reload = bench
        .service
        .reload(Config::parse("new", &text).expect("good"));
    assert_eq!(reload.expect("in force").changed, ["ours", "theirs"]);
    connect_as(65533, &socket("ours")).expect("all may");
}

#[test]
fn an_interface_outlives_its_switch_with_its_address() {
    let spaces = Spaces::new(["x", "y"]);
    let directory = std::env::temp_dir().join(format!("sg-persist-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let start = |more: &str| {
        let socket = directory.join("switch.sock");
        let text = format!(
            "[switch]\nsocket = \"{}\"\n[[port]]\nname = \"x\"\ntap = \"sgx\"\n{more}",
            socket.display()
        );
        spaces.within(0, move || {
            let config = Config::parse("test", &text).expect("a configuration");
            Service::start(config).expect("a switch")
        })
    };
    let end = |service: Service| {
        service.end();
        until("it has ended", || service.has_ended());
        drop(service);
    };
    let hardware = || {
        let list = spaces.within(0, || {
            let output = std::process::Command::new("ip")
                .args(["-br", "link"])
                .output();
            String::from_utf8(output.expect("ip").stdout).expect("text")
        });
        let line = list.lines().find(|line| line.starts_with("sgx "));
        let line = line.and_then(|line| line.split_whitespace().nth(2));
        line.map(str::to_owned)
    };
    let service = start("");
    let x = spaces.name(0);
    ip(&format!("-n {x} link add br0 type bridge"));
    ip(&format!("-n {x} link set sgx master br0 up"));
    let before = hardware().expect("an interface");
    end(service);
    assert_eq!(hardware(), Some(before.clone()), "after its end");
    let service = start("");
    assert_eq!(hardware(), Some(before), "after the next start");
    end(service);
    // One that is not to outlive it.
    ip(&format!("-n {x} link delete sgx"));
    let service = start("persist = false\n");
    assert!(hardware().is_some());
    end(service);
    assert_eq!(hardware(), None);
    let _ = fs::remove_dir_all(&directory);
}

/// The longest time between two of the frames that flow while a successor hangs.
fn longest_gap(hang: impl FnOnce(UnixStream) + Send + 'static) -> Duration {
    let bench = Bench::new("", &[("a", ""), ("b", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let socket = bench.directory.join("switch.sock");
    let service = Arc::clone(&bench.service);
    control::serve(&socket, "none".into(), service).expect("it answers");
    let (mut longest, mut last, mut count) = (Duration::ZERO, Instant::now(), 0);
    let successor = thread::spawn(move || {
        hang(control::ask_for_everything(&socket).expect("a connection"));
    });
    let start = Instant::now();
    while !successor.is_finished() || start.elapsed() < Duration::from_millis(500) {
        until("room", || a.send(&frame(mac(2), mac(1), count, 60)));
        assert_eq!(number(&b.expect()), (1, count));
        (longest, last, count) = (longest.max(last.elapsed()), Instant::now(), count + 1);
    }
    successor.join().expect("it ran");
    assert!(!bench.service.is_replaced());
    longest
}

#[test]
fn a_successor_that_hangs_stops_nothing_for_long() {
    let says_nothing = |stream: UnixStream| {
        thread::sleep(Duration::from_millis(1500));
        drop(stream);
    };
    let gap = longest_gap(says_nothing);
    assert!(gap < Duration::from_millis(500), "{gap:?} without a frame");
    let says_one_thing = |mut stream: UnixStream| {
        let mut word = [0; 8];
        stream.read_exact(&mut word).expect("a word");
        assert_eq!(word, *b"prepare\n");
        stream.write_all(b"p").expect("it is heard");
        thread::sleep(Duration::from_millis(1500));
    };
    let gap = longest_gap(says_one_thing);
    assert!(gap < Duration::from_millis(500), "{gap:?} without a frame");
}

#[test]
fn a_reload_that_cannot_open_a_port_changes_nothing() {
    let bench = Bench::new("", &[("a", ""), ("b", ""), ("c", "")]);
    let at = bench.directory.join("file");
    fs::write(&at, "no socket").expect("a file");
    let from = format!("{}/c.sock", bench.directory.display());
    let text = bench.text().replace("name = \"c\"", "name = \"d\"");
    let text = text.replace(&from, &at.display().to_string());
    let error = bench
        .service
        .reload(Config::parse("new", &text).expect("good"));
    let error = format!("{:#}", error.expect_err("no socket"));
    assert!(error.contains("nothing has changed: port d: "), "{error}");
    UnixStream::connect(from).expect("c is there");
    // An interface by AF_XDP is opened only then.
    let text = format!("{}[[port]]\nname = \"e\"\nxdp = \"none\"\n", bench.text());
    let error = bench
        .service
        .reload(Config::parse("new", &text).expect("good"));
    let error = format!("{:#}", error.expect_err("no interface"));
    assert!(
        error.starts_with("no port has changed: port e: "),
        "{error}"
    );
}
