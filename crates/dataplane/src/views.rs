//! What a switch shows of itself: its threads' answers as one.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

use crate::{
    adapter,
    config::show_mac,
    count::{Counters, Drop},
    engine::{
        Bay,
        waits::{Waiting, circles, merge},
    },
    lanes::Lanes,
    offload::Takes,
    port::Port,
    service::Service,
    tap,
    worker::Worker,
};

/// A port, with what all threads have counted of it.
struct View {
    name: String,
    thread: usize,
    kind: &'static str,
    is_lossless: bool,
    is_up: bool,
    takes: Takes,
    counters: Counters,
    closed: Option<String>,
    /// How frames come, where the kind does not say it.
    about: Option<&'static str>,
    /// Of an interface, what the kernel dropped, by place.
    kernel_drops: Map<String, Value>,
    /// Why that is not known.
    kernel_unknown: Option<String>,
    /// Of a TAP port, the name of its interface in the file, its descriptor, and whether it is in
    /// another network namespace.
    tap: Option<(String, OwnedFd)>,
    is_elsewhere: bool,
    /// Of AF_XDP, its interface.
    xdp: Value,
    /// Flow control by priority, if it has any.
    pfc: Value,
}

fn kind(port: &Port) -> (&'static str, bool) {
    match port {
        Port::Vhost(_) => ("vhost-user", true),
        Port::Tap(_) => ("tap", false),
        Port::Shm(_) => ("shm", true),
        Port::Xdp(_) => ("xdp", false),
        Port::Remote(_) => ("", false),
    }
}

/// How frames of a port come, where its kind does not say it.
fn about(port: &Port) -> Option<&'static str> {
    match port {
        Port::Xdp(xdp) if xdp.is_zero_copy() => Some("zero-copy"),
        Port::Xdp(_) => Some("copy"),
        Port::Tap(_) | Port::Vhost(_) | Port::Shm(_) | Port::Remote(_) => None,
    }
}

fn kernel_drops(port: &Port) -> Map<String, Value> {
    match port {
        Port::Xdp(xdp) => match serde_json::to_value(xdp.drops()) {
            Ok(Value::Object(places)) => places,
            _ => Map::new(),
        },
        Port::Vhost(_) | Port::Tap(_) | Port::Shm(_) | Port::Remote(_) => Map::new(),
    }
}

fn tap_of(port: &Port) -> Option<(String, OwnedFd)> {
    let Port::Tap(tap) = port else { return None };
    let descriptor = tap.descriptor().try_clone_to_owned().ok()?;
    Some((tap.name().to_owned(), descriptor))
}

/// Asks the kernel for the drops of a TAP port: not in the thread that moves frames.
fn ask_kernel(view: &mut View) {
    let Some((_, descriptor)) = &view.tap else {
        return;
    };
    let kernel = tap::kernel(descriptor.as_fd());
    let counts = match &kernel.drops {
        Ok((sent, received)) => [Value::from(*sent), Value::from(*received)],
        Err(_) => [Value::Null, Value::Null],
    };
    let places = ["kernel", "interface_rx"].map(str::to_owned);
    view.kernel_drops = places.into_iter().zip(counts).collect();
    view.kernel_unknown = kernel.drops.err();
    view.is_elsewhere = kernel.is_elsewhere;
}

fn xdp(port: &Port) -> Value {
    match port {
        Port::Xdp(xdp) => json!({
            "interface": xdp.interface(),
            "zero_copy": xdp.is_zero_copy(),
            "queues": xdp.queue_count(),
        }),
        _ => Value::Null,
    }
}

/// The priorities of a mask, from the lowest.
fn listed(priorities: u8) -> Vec<u8> {
    (0..8).filter(|it| priorities >> it & 1 != 0).collect()
}

fn pfc(bay: &Bay, now_ns: u64) -> Value {
    let Some(flow) = bay.port.flow() else {
        return Value::Null;
    };
    let (gate, demand) = (flow.gate(), flow.demand());
    let paused_ns = (0..8).map(|priority| gate.paused_ns(priority, now_ns));
    json!({
        "paused": listed(gate.paused()),
        "stopped": listed(flow.stopped()),
        "asked": listed(demand.asked()),
        "frames_sent": demand.frames(),
        "frames_received": gate.frames(),
        "frames_malformed": flow.malformed(),
        "paused_ns": paused_ns.collect::<Vec<_>>(),
        "held_bytes": (0..8).map(|it| demand.held_bytes(it)).collect::<Vec<_>>(),
        "most_held_bytes": demand.most_bytes(),
        "xoff_bytes": flow.plan().map(|plan| plan.thresholds.xoff_bytes),
        "xon_bytes": flow.plan().map(|plan| plan.thresholds.xon_bytes),
        "headroom_bytes": flow.plan().map(|plan| plan.headroom_bytes),
    })
}

/// What a thread knows of the ports, by their numbers: its own, and counters of others.
type Seen = (Vec<(u16, View)>, Vec<(u16, Counters)>);

fn see(worker: &mut Worker) -> Seen {
    let (now_ns, engine) = (worker.now_ns(), &worker.engine);
    let thread = engine.mesh().map_or(0, |mesh| mesh.me);
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for (number, bay) in engine.bays() {
        if !engine.is_own(number) {
            others.push((number, bay.counters));
            continue;
        }
        let (kind, is_lossless) = kind(&bay.port);
        let view = View {
            name: bay.name.clone(),
            thread,
            kind,
            is_lossless,
            is_up: bay.port.is_up(),
            takes: bay.port.takes(),
            counters: bay.counters,
            closed: bay.closed.clone(),
            about: about(&bay.port),
            kernel_drops: kernel_drops(&bay.port),
            kernel_unknown: None,
            tap: tap_of(&bay.port),
            is_elsewhere: false,
            xdp: xdp(&bay.port),
            pfc: pfc(bay, now_ns),
        };
        own.push((number, view));
    }
    (own, others)
}

/// The ports by their numbers.
fn views(service: &Service) -> Result<BTreeMap<u16, View>, String> {
    let (own, others): (Vec<_>, Vec<_>) = service.each(see)?.into_iter().unzip();
    let mut views: BTreeMap<u16, View> = own.into_iter().flatten().collect();
    for (number, counters) in others.into_iter().flatten() {
        if let Some(view) = views.get_mut(&number) {
            view.counters.add(&counters);
        }
    }
    views.values_mut().for_each(ask_kernel);
    Ok(views)
}

/// Each port.
///
/// # Errors
/// The switch has ended.
pub fn ports(service: &Service) -> Result<Value, String> {
    Ok(views(service)?.values().map(port).collect())
}

fn port(view: &View) -> Value {
    json!({
        "name": view.name,
        "kind": view.kind,
        "thread": view.thread,
        "xdp": view.xdp,
        "up": view.is_up,
        "lossless_ingress": view.is_lossless,
        "takes": view.takes,
        "received_frames": view.counters.received_frames,
        "received_bytes": view.counters.received_bytes,
        "delivered_frames": view.counters.delivered_frames,
        "delivered_bytes": view.counters.delivered_bytes,
        "dropped": view.counters.dropped(),
        "closed": view.closed,
        "pfc": view.pfc,
    })
}

/// Drops of each port by their reasons.
///
/// # Errors
/// The switch has ended.
pub fn drops(service: &Service) -> Result<Value, String> {
    let drops = |view: &View| {
        let reasons = Drop::NAMES.iter().zip(view.counters.drops);
        let mut value: Map<String, Value> = reasons
            .map(|(&name, count)| (name.to_owned(), count.into()))
            .collect();
        value.extend(view.kernel_drops.clone());
        json!({ "name": view.name, "drops": value, "kernel_unknown": view.kernel_unknown })
    };
    Ok(views(service)?.values().map(drops).collect())
}

/// What a thread is and has done.
struct Thread {
    lanes: Lanes,
    addresses: usize,
    refused: u64,
    held: usize,
    now_ns: u64,
    cpu: Option<u32>,
    /// CPU time of the thread, ns.
    busy_ns: u64,
    sleeps: u64,
    polls_busy: u64,
    polls_idle: u64,
}

impl Thread {
    fn of(worker: &mut Worker) -> Self {
        let engine = &worker.engine;
        let addresses = engine.learning().addresses();
        let used = clock_gettime(ClockId::ThreadCPUTime);
        Self {
            lanes: engine.choice().lanes,
            addresses: addresses
                .filter(|&(_, _, port, _)| engine.is_own(port))
                .count(),
            refused: engine.learning().refused(),
            held: engine.held_here(),
            now_ns: worker.now_ns(),
            cpu: worker.pace().cpu,
            busy_ns: used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64,
            sleeps: worker.effort.sleeps,
            polls_busy: worker.effort.busy_polls,
            polls_idle: worker.effort.idle_polls,
        }
    }

    fn show(&self, ports: Vec<&str>) -> Value {
        json!({
            "ports": ports,
            "cpu": self.cpu,
            "cpu_time_ns": self.busy_ns,
            "sleeps": self.sleeps,
            "polls_busy": self.polls_busy,
            "polls_idle": self.polls_idle,
        })
    }
}

/// Frames that the kernel dropped at a port; its interface's own counts of AF_XDP have some of them
/// as well.
fn dropped_by_kernel(view: &View) -> u64 {
    let is_own = |place: &str| view.tap.is_some() || place.starts_with("xdp_");
    let places = view.kernel_drops.iter().filter(|(place, _)| is_own(place));
    places.filter_map(|(_, count)| count.as_u64()).sum()
}

/// What an interface has of DCB, in words too. One in another network namespace cannot be asked.
fn dcb(interface: &str, views: &BTreeMap<u16, View>) -> Value {
    let is_it = |view: &&View| view.tap.as_ref().is_some_and(|it| it.0 == interface);
    let is_elsewhere = views.values().find(is_it).is_some_and(|it| it.is_elsewhere);
    let (dcb, words) = match is_elsewhere {
        true => (None, "in another network namespace".to_owned()),
        false => adapter::about(interface),
    };
    json!({ "interface": interface, "dcb": dcb, "lossless": words })
}

/// The switch as a whole.
///
/// # Errors
/// The switch has ended.
pub fn show(service: &Service) -> Result<Value, String> {
    let views = views(service)?;
    let threads = service.each(Thread::of)?;
    let each = threads.iter().enumerate().map(|(number, thread)| {
        let own = views.values().filter(|view| view.thread == number);
        thread.show(own.map(|view| &view.name[..]).collect())
    });
    let sum = |of: fn(&Thread) -> u64| threads.iter().map(of).sum::<u64>();
    let ingress = views.values().map(|view| {
        let (name, kind) = (&view.name, view.kind);
        json!({ "name": name, "kind": kind, "about": view.about, "lossless": view.is_lossless })
    });
    let interfaces = service.interfaces();
    let interfaces = interfaces.iter().map(|interface| dcb(interface, &views));
    let unknown = views.values().filter(|view| view.kernel_unknown.is_some());
    let unknown: Vec<&str> = unknown.map(|view| &view.name[..]).collect();
    let (stalled, circles) = alarm(service, &views)?;
    let dropped: u64 = views.values().map(|view| view.counters.dropped()).sum();
    Ok(json!({
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "predecessor": service.predecessor(),
        "lossless": threads.first().map(|thread| lossless(thread.lanes)),
        "ingress": ingress.collect::<Vec<_>>(),
        "interfaces": interfaces.collect::<Vec<_>>(),
        "ports": views.len(),
        "ports_up": views.values().filter(|view| view.is_up).count(),
        "addresses": sum(|it| it.addresses as u64),
        "addresses_refused": sum(|it| it.refused),
        "frames_held": sum(|it| it.held as u64),
        "frames_dropped": dropped,
        "frames_dropped_by_kernel": views.values().map(dropped_by_kernel).sum::<u64>(),
        "kernel_drops_unknown": unknown,
        "stalled": stalled,
        "circles": circles,
        "log_lines_lost": service.log_lines_lost.get().map(|lost| lost()),
        "uptime_ns": threads.first().map(|thread| thread.now_ns),
        "sleeps": sum(|it| it.sleeps),
        "polls_busy": sum(|it| it.polls_busy),
        "polls_idle": sum(|it| it.polls_idle),
        "threads": each.collect::<Vec<_>>(),
    }))
}

/// Names of the ports that have taken nothing for long, and of those that wait in circles.
type Alarms = (Vec<String>, Vec<Vec<String>>);

fn alarm(service: &Service, views: &BTreeMap<u16, View>) -> Result<Alarms, String> {
    let told = service.handle().call(|worker| {
        let alarm = worker.engine.alarm();
        (alarm.stalled.clone(), alarm.circles.clone())
    });
    let (stalled, circles) = told?;
    let names = |ports: &Vec<u16>| {
        let known = ports.iter().filter_map(|port| views.get(port));
        known.map(|view| view.name.clone()).collect()
    };
    Ok((names(&stalled), circles.iter().map(names).collect()))
}

/// Whether frames wait for a full port, or the priorities of which they do.
fn lossless(lanes: Lanes) -> Value {
    match lanes.lossless() {
        u8::MAX => true.into(),
        0 => false.into(),
        _ => lanes.listed().collect(),
    }
}

/// Who waits for whom.
struct Waits {
    /// Of the ports.
    names: BTreeMap<u16, String>,
    /// Priorities that a pause or a full buffer stops, by port.
    stopped: BTreeMap<u16, u8>,
    waits: Vec<Waiting>,
    now_ns: u64,
}

fn waits(service: &Service) -> Result<Waits, String> {
    let each = service.each(|worker| {
        let engine = &worker.engine;
        let names = engine
            .bays()
            .map(|(number, bay)| (number, bay.name.clone()));
        let stopped = engine
            .bays()
            .filter_map(|(number, bay)| Some((number, bay.port.flow()?.stopped())));
        let named = (names.collect::<Vec<_>>(), stopped.collect::<Vec<_>>());
        (named, engine.waits(), worker.now_ns())
    })?;
    let (mut names, mut stopped) = (BTreeMap::new(), BTreeMap::new());
    let (mut waits, mut now_ns) = (Vec::new(), 0);
    for ((some, some_stopped), waiting, at_ns) in each {
        names.extend(some);
        stopped.extend(some_stopped);
        now_ns = at_ns.max(now_ns);
        waits.extend(waiting);
    }
    Ok(Waits {
        names,
        stopped,
        waits: merge(waits.into_iter()),
        now_ns,
    })
}

/// Which senders wait for which receiver.
///
/// # Errors
/// The switch has ended.
pub fn queues(service: &Service) -> Result<Value, String> {
    let Waits {
        names,
        stopped,
        waits,
        now_ns,
    } = waits(service)?;
    let name = |number: u16| names.get(&number).cloned().unwrap_or_default();
    let circles = circles(&waits).concat();
    let each = waits.iter().map(|waiting| {
        let from = waiting.from.iter();
        let from = from.map(|&(port, frames)| json!({ "port": name(port), "frames": frames }));
        json!({
            "receiver": name(waiting.to),
            "waits_ns": now_ns.saturating_sub(waiting.since_ns),
            "senders": from.collect::<Vec<_>>(),
            "stopped": listed(stopped.get(&waiting.to).copied().unwrap_or_default()),
            "in_circle": circles.contains(&waiting.to),
        })
    });
    Ok(each.collect())
}

/// Addresses and where they are, as the thread of their port has seen them.
///
/// # Errors
/// The switch has ended.
pub fn addresses(service: &Service) -> Result<Value, String> {
    let each = service.each(|worker| {
        let (now_ns, engine) = (worker.now_ns(), &mut worker.engine);
        let all: Vec<_> = engine.learning().addresses().collect();
        let own = all.into_iter().filter(|it| engine.is_own(it.2));
        let own = own.collect::<Vec<_>>();
        let named = own.into_iter().map(|(vlan, mac, port, seen_ns)| {
            let name = engine.bay_mut(port).map(|bay| bay.name.clone());
            (vlan, mac, name, now_ns.saturating_sub(seen_ns))
        });
        named.collect::<Vec<_>>()
    })?;
    let mut all = each.concat();
    all.sort_unstable();
    let each = all.into_iter().map(|(vlan, mac, name, age_ns)| {
        json!({
            "vlan": vlan,
            "address": show_mac(mac),
            "port": name,
            "age_ns": age_ns,
        })
    });
    Ok(each.collect())
}
