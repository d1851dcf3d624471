//! What the kernel says of TAP interfaces that have moved. Needs root.

use std::{fs, net::UdpSocket, os::fd::AsFd, sync::Arc};

use common::{
    Guest, PLAIN, frame, mac,
    spaces::{Spaces, ip},
    until,
};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use serde_json::Value;
use sluicegate_dataplane::{
    config::Config,
    service::Service,
    tap::{self, Tap},
    views,
};

use crate::common;

/// Frames that an interface of a namespace has dropped on their way to the switch.
fn dropped(spaces: &Spaces, name: &'static str) -> u64 {
    spaces.within(1, move || {
        let text = fs::read_to_string("/proc/thread-self/net/dev").expect("proc");
        let mut lines = text.lines().filter_map(|line| line.trim().split_once(':'));
        let (_, counts) = lines.find(|it| it.0 == name).expect("the interface");
        let count = counts.split_whitespace().nth(11).expect("a count");
        count.parse().expect("a number")
    })
}

/// Sends more datagrams from the second namespace than a guest, the switch and the kernel hold.
fn flood(spaces: &Spaces) {
    spaces.within(1, || {
        let socket = UdpSocket::bind("10.8.0.2:0").expect("a socket");
        for _ in 0..5000 {
            // What finds no room is what this is about.
            let _ = socket.send_to(&[0; 100], "10.8.0.9:7");
        }
    });
}

#[test]
fn drops_of_an_interface_in_another_namespace_are_seen() {
    let spaces = Spaces::new(["x", "y"]);
    let directory = std::env::temp_dir().join(format!("sg-moved-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let socket = directory.join("g.sock");
    let text = format!(
        "[switch]\nsocket = \"{}\"\n\
         [[port]]\nname = \"here\"\ntap = \"sghere\"\n\
         [[port]]\nname = \"moved\"\ntap = \"sgmoved\"\n\
         [[port]]\nname = \"g\"\nvhost_user = \"{}\"\n",
        directory.join("switch.sock").display(),
        socket.display()
    );
    let service = spaces.within(0, move || {
        let config = Config::parse("test", &text).expect("a configuration");
        Arc::new(Service::start(config).expect("a switch"))
    });
    let [x, y] = [spaces.name(0), spaces.name(1)];
    // It may have another name as well.
    ip(&format!("-n {x} link set sgmoved netns {y} name other"));
    ip(&format!("-n {y} addr add 10.8.0.2/24 dev other"));
    // Shorter than what comes while the switch does not look.
    ip(&format!("-n {y} link set other up txqueuelen 2"));
    ip(&format!(
        "-n {y} neigh add 10.8.0.9 lladdr 02:00:00:00:00:09 dev other"
    ));
    let mut guest = Guest::connect(&socket, PLAIN);
    assert!(guest.send(&frame([0xff; 6], mac(9), 1, 60)));
    common::halted(&service, || flood(&spaces));
    let kernel = dropped(&spaces, "other");
    assert!(kernel > 0, "the kernel drops what nobody takes");
    let ask = |of: fn(&Service) -> Result<Value, String>| {
        let service = Arc::clone(&service);
        spaces.within(0, move || of(&service).expect("an answer"))
    };
    let drops = ask(views::drops);
    let moved = &drops[1];
    assert_eq!(moved["name"], "moved");
    // Of what the kernel itself sends there, more is dropped meanwhile.
    let all = kernel..=dropped(&spaces, "other");
    let told = moved["drops"]["kernel"].as_u64().expect("a count");
    assert!(all.contains(&told), "{told} in {all:?}");
    // The guest's frame has a type that nobody takes there.
    assert_eq!(moved["drops"]["interface_rx"], 1);
    assert!(moved["kernel_unknown"].is_null(), "{moved}");
    assert_eq!(drops[0]["drops"]["kernel"], 0);
    let show = ask(views::show);
    let whole = show["frames_dropped_by_kernel"].as_u64().expect("a sum");
    assert!(whole > told, "{whole}, with that of the other way");
    assert_eq!(show["kernel_drops_unknown"], Value::Array(Vec::new()));
    let words = |at: usize| show["interfaces"][at]["lossless"].as_str().expect("words");
    assert_eq!(words(1), "in another network namespace");
    assert!(!words(0).contains("No such device"), "{}", words(0));
    until("all that waited", || guest.drain().is_empty());
    service.end();
    let _ = fs::remove_dir_all(&directory);
}

#[test]
fn drops_elsewhere_are_read_with_the_rights_of_the_service() {
    let spaces = Spaces::new(["x", "y"]);
    let tap = spaces.within(0, || Tap::open("sgmoved", false).expect("an interface"));
    ip(&format!(
        "-n {} link set sgmoved netns {}",
        spaces.name(0),
        spaces.name(1)
    ));
    let with = |effective: CapabilitySet| {
        let descriptor = tap.descriptor().try_clone_to_owned().expect("a copy");
        spaces.within(0, move || {
            let mut rights = capabilities(None).expect("its rights");
            rights.effective = effective;
            set_capabilities(None, rights).expect("less");
            tap::kernel(descriptor.as_fd())
        })
    };
    // As the packaged service, which has CAP_NET_ADMIN alone; the second time the namespace has a
    // number.
    for _ in 0..2 {
        let kernel = with(CapabilitySet::NET_ADMIN);
        assert_eq!((kernel.is_elsewhere, kernel.drops), (true, Ok((0, 0))));
    }
    // What it may not ask is unknown, and not none.
    let kernel = with(CapabilitySet::empty());
    kernel.drops.expect_err("it may not");
}
