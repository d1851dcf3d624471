//! The control socket: a line of JSON asks, a line of JSON answers.
//!
//! `{"ask": "show"}` and `"ports"`, `"queues"`, `"drops"`, `"addresses"`, `"flows"`, `"reload"`. An
//! answer is `{"ok": …}` or `{"error": "…"}`. Only the socket's owner may open it.
//! `{"ask": "capture", "capture": {…}}` is answered with a file behind the line ([`Asked`],
//! [`session`]).
//! `{"ask": "takeover"}` is answered with everything that the switch has ([`crate::handover`]).

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    adapter,
    capture::{Asked, session},
    config::show_mac,
    count::Drop,
    engine::{Bay, Engine},
    lanes::Lanes,
    port::Port,
    report::Report,
    service::{Service, reload_file},
    shm::pfc::FlowControl,
    worker::Worker,
};

/// The longest question in bytes.
const ASK_MAX: u64 = 1 << 16;

/// A question that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(5);

const NONSENSE: &str = "the switch answered nonsense";

/// The connection of a capture.
pub type Captured = BufReader<UnixStream>;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ask {
    /// The switch as a whole.
    Show,
    /// Each port with its counters.
    Ports,
    /// Which senders wait for which receiver.
    Queues,
    /// Drops by port and reason, the kernel's included.
    Drops,
    /// Addresses and where they are.
    Addresses,
    /// Its enforcement ([`Report`]); `null` without a policy.
    Flows,
    /// Read the file again.
    Reload,
    /// Capture frames.
    Capture,
    /// Hand everything over to the process that asks.
    Takeover,
}

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    ask: Ask,
    /// What to capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capture: Option<Asked>,
}

/// Answers at a socket in a thread of its own, while the process lives.
///
/// # Errors
/// The socket cannot be made, or another switch answers there.
pub fn serve(socket: &Path, file: PathBuf, service: Arc<Service>) -> anyhow::Result<()> {
    if UnixStream::connect(socket).is_ok() {
        bail!(
            "another switch answers at {}; give this one another socket",
            socket.display()
        );
    }
    if let Some(directory) = socket.parent() {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    }
    match socket.symlink_metadata() {
        Ok(about) if about.file_type().is_socket() => {
            // What is left of a switch that ended.
            fs::remove_file(socket)?;
        }
        Ok(_) => bail!(
            "{} is a file and no socket; choose another path",
            socket.display()
        ),
        Err(_) => {}
    }
    let listener = UnixListener::bind(socket)
        .with_context(|| format!("cannot listen at {}", socket.display()))?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    go_on(listener, file, service)
}

/// Answers at a socket that listens already, as [`serve`] does.
///
/// # Errors
/// No thread.
pub fn go_on(listener: UnixListener, file: PathBuf, service: Arc<Service>) -> anyhow::Result<()> {
    thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || {
            while !service.is_replaced() {
                let Ok((stream, _)) = listener.accept() else {
                    continue;
                };
                if let Err(error) = answer(stream, &listener, &file, &service) {
                    tracing::debug!(%error, "a question was not answered");
                }
            }
        })?;
    Ok(())
}

fn answer(
    stream: UnixStream,
    listener: &UnixListener,
    file: &Path,
    service: &Arc<Service>,
) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?.take(ASK_MAX)).read_line(&mut line)?;
    let request = serde_json::from_str::<Request>(&line);
    match &request {
        Ok(Request {
            ask: Ask::Takeover, ..
        }) => {
            return service.hand_over(&stream, listener).inspect_err(|error| {
                tracing::warn!(%error, "nothing was handed over: this switch goes on");
            });
        }
        Ok(Request {
            ask: Ask::Capture,
            capture,
        }) => return begin_capture(stream, capture.clone().unwrap_or_default(), service),
        _ => {}
    }
    let result = request
        .map_err(|error| anyhow!("no question that is known: {error}"))
        .and_then(|request| respond(request.ask, file, service));
    let value = match result {
        Ok(value) => json!({ "ok": value }),
        Err(error) => json!({ "error": format!("{error:#}") }),
    };
    writeln!(&stream, "{value}")?;
    Ok(())
}

/// A thread of its own captures.
fn begin_capture(stream: UnixStream, asked: Asked, service: &Arc<Service>) -> anyhow::Result<()> {
    let service = Arc::clone(service);
    thread::Builder::new()
        .name("capture".to_owned())
        .spawn(move || {
            if let Err(error) = session::serve(stream, &asked, &service) {
                tracing::debug!(%error, "a client of a capture has gone");
            }
        })?;
    Ok(())
}

fn respond(ask: Ask, file: &Path, service: &Service) -> anyhow::Result<Value> {
    let order = match ask {
        Ask::Reload => return Ok(serde_json::to_value(reload_file(service, file)?)?),
        Ask::Takeover | Ask::Capture => bail!("it is answered elsewhere"),
        Ask::Flows => return Ok(serde_json::to_value(report(service)?)?),
        Ask::Show => return whole(service),
        Ask::Ports => ports,
        Ask::Drops => |worker: &mut Worker| each(&worker.engine, drops),
        Ask::Queues => queues,
        Ask::Addresses => addresses,
    };
    service
        .handle()
        .call(order)
        .map_err(|reason| anyhow!(reason))
}

/// What a running switch tells of its enforcement; `None`: it has no policy.
///
/// # Errors
/// The switch has ended.
pub fn report(service: &Service) -> anyhow::Result<Option<Report>> {
    let order = |worker: &mut Worker| {
        let govern = worker.engine.govern.as_ref();
        govern.map(|govern| Report::new(govern, worker.now_ns()))
    };
    let report = service.handle().call(order);
    report.map_err(|reason| anyhow!(reason))
}

fn each(engine: &Engine, of: impl Fn(&Bay) -> Value) -> Value {
    engine.bays().map(|(_, bay)| of(bay)).collect()
}

/// The switch as a whole, with what its interfaces have of DCB.
fn whole(service: &Service) -> anyhow::Result<Value> {
    let order = |worker: &mut Worker| show(worker);
    let shown = service.handle().call(order);
    let mut shown = shown.map_err(|reason| anyhow!(reason))?;
    let interfaces = service.interfaces();
    let about = interfaces.iter().map(|interface| {
        let (dcb, words) = adapter::about(interface);
        json!({ "interface": interface, "dcb": dcb, "lossless": words })
    });
    shown["interfaces"] = about.collect();
    Ok(shown)
}

fn show(worker: &mut Worker) -> Value {
    let (mut up, mut dropped) = (0, 0);
    for (_, bay) in worker.engine.bays() {
        up += usize::from(bay.port.is_up());
        dropped += bay.counters.dropped();
    }
    let choice = worker.engine.choice();
    let ingress = worker.engine.bays().map(|(_, bay)| {
        let (kind, is_lossless) = kind(&bay.port);
        let (name, about) = (&bay.name, about(&bay.port));
        json!({ "name": name, "kind": kind, "about": about, "lossless": is_lossless })
    });
    let ingress: Vec<_> = ingress.collect();
    json!({
        "lossless": lossless(choice.lanes),
        "ingress": ingress,
        "ports": worker.engine.bays().count(),
        "ports_up": up,
        "addresses": worker.engine.learning().addresses().count(),
        "addresses_refused": worker.engine.learning().refused(),
        "frames_held": worker.engine.held(),
        "frames_dropped": dropped,
        "uptime_ns": worker.now_ns(),
        "sleeps": worker.effort.sleeps,
        "polls_busy": worker.effort.busy_polls,
        "polls_idle": worker.effort.idle_polls,
    })
}

/// Whether frames wait for a full port, or the priorities of which they do.
fn lossless(lanes: Lanes) -> Value {
    match lanes.lossless() {
        u8::MAX => true.into(),
        0 => false.into(),
        _ => lanes.listed().collect(),
    }
}

fn kind(port: &Port) -> (&'static str, bool) {
    match port {
        Port::Vhost(_) => ("vhost-user", true),
        Port::Tap(_) => ("tap", false),
        Port::Shm(_) => ("shm", true),
        Port::Xdp(_) => ("xdp", false),
    }
}

/// How frames of a port come, where its kind does not say it.
fn about(port: &Port) -> Option<&'static str> {
    match port {
        Port::Xdp(xdp) if xdp.is_zero_copy() => Some("zero-copy"),
        Port::Xdp(_) => Some("copy"),
        Port::Tap(_) | Port::Vhost(_) | Port::Shm(_) => None,
    }
}

fn ports(worker: &mut Worker) -> Value {
    let now_ns = worker.now_ns();
    each(&worker.engine, |bay| port(bay, now_ns))
}

/// The priorities of a mask, from the lowest.
fn listed(priorities: u8) -> Vec<u8> {
    (0..8).filter(|it| priorities >> it & 1 != 0).collect()
}

/// Flow control by priority at a port, if it has any.
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

fn port(bay: &Bay, now_ns: u64) -> Value {
    let (kind, is_lossless) = kind(&bay.port);
    let xdp = match &bay.port {
        Port::Xdp(xdp) => json!({
            "interface": xdp.interface(),
            "zero_copy": xdp.is_zero_copy(),
            "queues": xdp.queue_count(),
        }),
        _ => Value::Null,
    };
    json!({
        "name": bay.name,
        "kind": kind,
        "xdp": xdp,
        "up": bay.port.is_up(),
        "lossless_ingress": is_lossless,
        "takes": bay.port.takes(),
        "received_frames": bay.counters.received_frames,
        "received_bytes": bay.counters.received_bytes,
        "delivered_frames": bay.counters.delivered_frames,
        "delivered_bytes": bay.counters.delivered_bytes,
        "dropped": bay.counters.dropped(),
        "closed": bay.closed,
        "pfc": pfc(bay, now_ns),
    })
}

fn drops(bay: &Bay) -> Value {
    let reasons = Drop::NAMES.iter().zip(bay.counters.drops);
    let mut value: serde_json::Map<String, Value> = reasons
        .map(|(&name, count)| (name.to_owned(), count.into()))
        .collect();
    match &bay.port {
        Port::Tap(tap) => _ = value.insert("kernel".to_owned(), tap.kernel_drops().into()),
        Port::Xdp(xdp) => {
            if let Ok(Value::Object(places)) = serde_json::to_value(xdp.drops()) {
                value.extend(places);
            }
        }
        Port::Vhost(_) | Port::Shm(_) => {}
    }
    json!({ "name": bay.name, "drops": value })
}

fn queues(worker: &mut Worker) -> Value {
    let (now_ns, engine) = (worker.now_ns(), &worker.engine);
    let name = |number: u16| {
        let found = engine.bays().find(|&(port, _)| port == number);
        found.map_or_else(String::new, |(_, bay)| bay.name.clone())
    };
    let circles = engine.circles();
    let each = engine.bays().filter_map(|(number, bay)| {
        let (waiting, since_ns) = engine.waiting(number);
        since_ns.map(|since_ns| {
            let from: Vec<_> = waiting
                .iter()
                .map(|&(from, frames)| json!({ "port": name(from), "frames": frames }))
                .collect();
            json!({
                "receiver": bay.name,
                "waits_ns": now_ns.saturating_sub(since_ns),
                "senders": from,
                "stopped": listed(bay.port.flow().map_or(0, FlowControl::stopped)),
                "in_circle": circles.contains(&number),
            })
        })
    });
    each.collect()
}

fn addresses(worker: &mut Worker) -> Value {
    let (now_ns, engine) = (worker.now_ns(), &worker.engine);
    let names: Vec<_> = engine
        .bays()
        .map(|(n, bay)| (n, bay.name.clone()))
        .collect();
    let mut all: Vec<_> = engine.learning().addresses().collect();
    all.sort_unstable();
    let each = all.into_iter().map(|(vlan, mac, port, seen_ns)| {
        let name = names.iter().find(|&&(number, _)| number == port);
        json!({
            "vlan": vlan,
            "address": show_mac(mac),
            "port": name.map(|(_, name)| name),
            "age_ns": now_ns.saturating_sub(seen_ns),
        })
    });
    each.collect()
}

fn send(socket: &Path, ask: Ask, capture: Option<Asked>) -> anyhow::Result<UnixStream> {
    let stream = UnixStream::connect(socket).with_context(|| {
        format!(
            "no switch answers at {}; start one with `sluicegate switch run FILE`, or name its socket",
            socket.display()
        )
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = serde_json::to_string(&Request { ask, capture })?;
    writeln!(&stream, "{request}")?;
    Ok(stream)
}

/// Asks a running switch for everything that it has: the connection by which that comes.
///
/// # Errors
/// No switch answers there.
pub fn ask_for_everything(socket: &Path) -> anyhow::Result<UnixStream> {
    send(socket, Ask::Takeover, None)
}

/// Asks a running switch for a capture: the names of what is captured, and the connection by which
/// the file comes. It ends when this end is shut down for writing.
///
/// # Errors
/// No switch answers there, or it refuses.
pub fn capture(socket: &Path, asked: Asked) -> anyhow::Result<(Vec<String>, Captured)> {
    let mut stream = BufReader::new(send(socket, Ask::Capture, Some(asked))?);
    let mut answer = hear(&mut stream)?;
    let points = serde_json::from_value(answer["points"].take()).context(NONSENSE)?;
    Ok((points, stream))
}

/// Asks a running switch.
///
/// # Errors
/// No switch answers there, or it refuses.
pub fn ask(socket: &Path, ask: Ask) -> anyhow::Result<Value> {
    hear(&mut BufReader::new(send(socket, ask, None)?))
}

fn hear(stream: &mut Captured) -> anyhow::Result<Value> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let mut answer: Value = serde_json::from_str(&line).context(NONSENSE)?;
    match answer.get_mut("ok") {
        Some(value) => Ok(value.take()),
        None => Err(anyhow!(
            "{}",
            answer["error"].as_str().unwrap_or("no reason given")
        )),
    }
}
