//! `sluicegate switch`: the userspace switch, and questions to one that runs.

mod capture;
mod upgrade;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};
use serde_json::Value;
use sluicegate_agent::{
    daemon,
    log::lost_lines,
    meter::serve::{Listener, Meter},
    service::Service as Manager,
};
use sluicegate_config::units::{format_bytes, format_duration};
use sluicegate_dataplane::{
    config::{self, Config, Kind},
    control::{self, Ask},
    ledger::is_of_storage,
    service::Service,
    shm::session::Wanted,
    upgrade::{Asked, Refused, Remedy, Replaced},
    vhost::session::Mode,
};

use crate::{
    columns::{Align, table},
    descriptors, interrupt,
    log::{self, Format},
    output::{self, Failure},
    source,
};

/// A switch for the guests of this host, which holds frames back instead of dropping them.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Run a switch until SIGINT or SIGTERM
    ///
    /// Guests connect by vhost-user, other switches of this host by shared memory. They go on when
    /// the switch reads its file again (`sluicegate switch reload`).
    #[command(after_help = "Examples:
  sluicegate switch run /etc/sluicegate/switch.toml
  sluicegate switch run --take-over /etc/sluicegate/switch.toml")]
    Run(Run),
    /// Say whether a configuration is good, and which ports it has
    #[command(after_help = "Example: sluicegate switch check /etc/sluicegate/switch.toml")]
    Check {
        /// Configuration
        file: PathBuf,
    },
    /// Show the switch as a whole
    ///
    /// Which ports are lossless at ingress, what it holds and has dropped, each thread's CPU time,
    /// and ports that others wait for, alone or in a circle.
    #[command(after_help = "Examples:
  sluicegate switch show
  sluicegate switch show --json | jq .threads")]
    Show(Question),
    /// Show each port with its counters, and whether its ingress is lossless
    #[command(after_help = "Examples:
  sluicegate switch ports
  sluicegate switch ports --socket /run/sluicegate/left.sock")]
    Ports(Question),
    /// Show which senders wait for which receiver
    ///
    /// And for how long, which of them wait in a circle, and which priorities are paused.
    #[command(after_help = "Examples:
  sluicegate switch queues
  watch -n 1 sluicegate switch queues")]
    Queues(Question),
    /// Show drops by port and reason, those of the kernel included
    #[command(after_help = "Examples:
  sluicegate switch drops
  sluicegate switch capture --at drop -c 10 | tshark -r -   # the frames themselves")]
    Drops(Question),
    /// Show the addresses that it has learned
    #[command(after_help = "Example: sluicegate switch addresses --json")]
    Addresses(Question),
    /// Capture frames at points of ports, as a pcapng file
    ///
    /// Until Ctrl-C, or as many frames or as much time as asked for. The switch does not wait for
    /// the file: frames that find no room on their way are counted, at the end of the file too.
    #[command(after_help = "Examples:
  sluicegate switch capture -w all.pcapng
  sluicegate switch capture vm1 --at in,out --address 10.0.0.1 | tshark -r -
  sluicegate switch capture --at drop --duration 60s -w drops.pcapng
  ssh host sudo sluicegate switch capture vm1 -w - | wireshark -k -i -")]
    Capture(capture::Args),
    /// Read the configuration again; ports that it does not change are not touched
    #[command(after_help = "Examples:
  sluicegate switch reload
  sluicegate switch check /etc/sluicegate/switch.toml && sluicegate switch reload

Exit codes: 0 the file is in force; 1 a port or a policy could not be had, the error says what has
changed; 2 the file has errors, nothing has changed.")]
    Reload(Question),
    /// Have a running switch start its successor, which takes over without losing a frame
    ///
    /// The successor is the program that is installed by now, with the same arguments. It checks
    /// the configuration before anything is stopped. If it fails, the switch that runs goes on.
    /// Works by hand and under systemd (Type=notify).
    #[command(after_help = "Examples:
  sluicegate switch upgrade
  sluicegate switch upgrade --program /opt/sluicegate/bin/sluicegate --json
  sluicegate switch upgrade || systemctl restart sluicegate-switch

Exit codes: 0 another process has taken over; 1 it failed and the old one goes on; 2 wrong usage,
or the successor refuses its file, and the old one goes on; 4 the switch cannot be asked, or cannot
hand over to this version: restart it.")]
    Upgrade(upgrade::Args),
}

/// How to run one.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// Configuration
    file: PathBuf,

    /// Take the place of the switch that runs, which ends when this one has everything
    #[arg(long)]
    take_over: bool,

    /// Serve metrics of its ports and its enforcement for Prometheus at
    /// http://ADDRESS:PORT/metrics. Clients are not authenticated: choose a loopback address unless
    /// the network is trusted
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,

    /// How to write the log
    #[arg(long, value_enum, default_value_t)]
    log_format: Format,

    /// Log more
    #[arg(long, short)]
    verbose: bool,
}

/// Which switch to ask, and in which form to answer.
#[derive(Debug, clap::Args)]
pub struct Question {
    /// The control socket
    #[arg(long, value_name = "PATH", default_value = config::SOCKET)]
    socket: PathBuf,

    /// The answer as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `sluicegate switch …`.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => serve(args),
        Command::Check { file } => {
            let config = Config::read(file)?;
            for warning in &config.warnings {
                output::say(warning.text().trim_end());
            }
            output::print(&format!("{}: good\n{}", file.display(), summary(&config)))
        }
        Command::Show(question) => answer(question, Ask::Show, show),
        Command::Ports(question) => answer(question, Ask::Ports, ports),
        Command::Queues(question) => answer(question, Ask::Queues, queues),
        Command::Drops(question) => answer(question, Ask::Drops, drops),
        Command::Addresses(question) => answer(question, Ask::Addresses, addresses),
        Command::Capture(args) => capture::run(args),
        Command::Reload(question) => answer(question, Ask::Reload, reloaded),
        Command::Upgrade(args) => upgrade::run(args),
    }
}

fn serve(args: &Run) -> Result<(), Failure> {
    log::begin(args.log_format, args.verbose);
    descriptors::raise_limit();
    let file = std::path::absolute(&args.file).map_err(anyhow::Error::from)?;
    let config = Config::read(&file)?;
    daemon::log_warnings(&config.warnings);
    let socket = config.socket.clone();
    interrupt::install()?;
    let plan = upgrade::Plan::new(&file)?;
    let mut unheard = Unheard::default();
    let service = if args.take_over {
        let taken = Service::take_over(config).map_err(upgrade::try_again)?;
        let (service, listener, outage_ns) = taken;
        let service = Arc::new(service);
        service.upgrades().open();
        let begun = control::go_on(listener, file.clone(), Arc::clone(&service));
        // Its guests and frames are here by now, whatever else cannot be had.
        unheard.note(begun);
        let outage_us = outage_ns / 1000;
        tracing::info!(
            outage_us,
            "the switch has taken over: no frame moved for so long"
        );
        service
    } else {
        let service = Arc::new(Service::start(config)?);
        service.upgrades().open();
        match control::serve(&socket, file.clone(), Arc::clone(&service)) {
            Err(error) if !is_of_storage(&error) => return Err(error.into()),
            begun => unheard.note(begun),
        }
        tracing::info!(socket = %socket.display(), "the switch runs");
        service
    };
    // It is set once.
    let _ = service.log_lines_lost.set(lost_lines);
    if let Some(address) = args.metrics {
        serve_metrics(address, &service);
    }
    let again = || control::serve(&socket, file.clone(), Arc::clone(&service));
    let asked = live(&service, &plan, || unheard.look(again))?;
    if service.end() {
        // The socket may be another's by now only if it was removed by hand.
        let _ = std::fs::remove_file(&socket);
    } else {
        give_way(&service, asked);
    }
    Ok(())
}

/// A control socket that could not be had: it is tried again, and frames go on meanwhile.
#[derive(Default)]
struct Unheard {
    next: Option<Instant>,
}

impl Unheard {
    const AGAIN: Duration = Duration::from_secs(5);

    /// After an attempt.
    fn note(&mut self, begun: anyhow::Result<()>) {
        match begun {
            Ok(()) if self.next.take().is_some() => tracing::info!("the control socket is there"),
            Ok(()) => {}
            Err(error) => {
                if self.next.is_none() {
                    tracing::warn!(
                        "no control socket, and so no `switch show` or `upgrade`: {error:#}; it is \
                         tried again every {} s",
                        Self::AGAIN.as_secs()
                    );
                }
                self.next = Some(Instant::now() + Self::AGAIN);
            }
        }
    }

    /// Tries again when that is due.
    fn look(&mut self, serve: impl FnOnce() -> anyhow::Result<()>) {
        if self.next.is_some_and(|next| Instant::now() >= next) {
            self.note(serve());
        }
    }
}

/// What a service manager shows of the switch.
const RUNS: &str = "moving frames";

/// Runs until this process is to end, or another one has taken over: the client that has asked for
/// that, if one has. `looks` is called now and then.
fn live(
    service: &Service,
    plan: &upgrade::Plan,
    mut looks: impl FnMut(),
) -> anyhow::Result<Option<(Asked, Replaced)>> {
    let manager = Manager::of_environment();
    // A manager believes its main process alone, which is the predecessor until that has ended.
    let mut predecessor = service.predecessor().and_then(|it| it.pid);
    let mut is_told = false;
    while !interrupt::requested() && !service.is_replaced() {
        if service.has_ended() {
            return Err(anyhow::anyhow!("the switch's thread has ended by itself"));
        }
        looks();
        predecessor = predecessor.filter(|&pid| is_there(pid));
        if !is_told && predecessor.is_none() {
            manager.ready(RUNS);
            is_told = true;
        }
        if let Some(asked) = service.upgrades().next(Duration::from_millis(100)) {
            if let Some(done) = plan.serve(service, asked) {
                return Ok(Some(done));
            }
        }
    }
    if !service.is_replaced() {
        manager.stopping("ending");
    }
    Ok(None)
}

/// Whether a process exists.
fn is_there(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Another process has taken over: the service manager hears which, and then the client.
fn give_way(service: &Service, asked: Option<(Asked, Replaced)>) {
    tracing::info!("another process has taken over");
    if let Some(pid) = service.successor().filter(|&pid| pid > 0) {
        Manager::of_environment().replaced(pid, RUNS);
    }
    if let Some((asked, replaced)) = asked {
        asked.answer(&Ok(replaced));
    }
}

/// Listens for scrapes as soon as that can be had; the process that was replaced may have the
/// address for now. Without metrics the switch runs all the same.
fn serve_metrics(address: SocketAddr, service: &Arc<Service>) {
    let (bound, service) = (Listener::bind_or_later(address), Arc::clone(service));
    let serve = move || {
        // Its thread has gone: it has said why.
        let Ok(listener) = bound.recv() else { return };
        if let Err(error) = listener.serve(meter(service)) {
            tracing::warn!("no metrics: {error:#}");
        }
    };
    let begun = thread::Builder::new().name("metrics".into()).spawn(serve);
    if let Err(error) = begun {
        tracing::warn!("no metrics: {error}");
    }
}

fn meter(service: Arc<Service>) -> Meter {
    let other = Arc::clone(&service);
    let mut meter = Meter::of("switch", move || {
        let report = control::report(&service)?;
        report.as_ref().map(source::snapshot).transpose()
    });
    // A switch that has ended serves nothing any more.
    meter.switch = Box::new(move || source::ports(|ask| control::view(ask, &other)).ok());
    meter
}

fn summary(config: &Config) -> String {
    let (lanes, queue) = (config.choice.lanes, config.choice.queue);
    let mut text = match lanes.lossless() {
        u8::MAX => {
            "lossless: frames for a full port wait in the rings of their senders\n".to_owned()
        }
        0 => format!("lossy: {queue} frames wait for each port\n"),
        _ => {
            let listed: Vec<_> = lanes.listed().map(|it| it.to_string()).collect();
            format!(
                "lossless priorities: {}; of each priority {queue} frames wait for each port\n",
                listed.join(", ")
            )
        }
    };
    if config.threads.len() > 1 {
        let cpus = config.threads.iter().flatten().map(u32::to_string);
        let cpus = cpus.collect::<Vec<_>>().join(", ");
        text += &format!("{} threads", config.threads.len());
        text += &match cpus.is_empty() {
            true => "\n".to_owned(),
            false => format!(" on the CPUs {cpus}\n"),
        };
    }
    if let Some(governing) = &config.governing {
        text += &format!("policy: {}\n", governing.path.display());
    }
    for port in &config.ports {
        let kind = match &port.kind {
            Kind::VhostUser(path, Mode::Server, _) => format!("vhost-user at {}", path.display()),
            Kind::VhostUser(path, Mode::Client, _) => {
                format!("vhost-user, connects to {}", path.display())
            }
            Kind::Tap(name) => format!("interface {name}, lossy at ingress"),
            Kind::Xdp(wanted) => format!(
                "interface {} by AF_XDP ({}), lossy at ingress",
                wanted.interface,
                wanted.mode.name()
            ),
            Kind::Shm(path, wanted) => match wanted.mode {
                Mode::Server => format!("cable at {}{}", path.display(), flow(wanted)),
                Mode::Client => format!("cable, connects to {}", path.display()),
            },
        };
        let governed = match (port.is_governed, port.tenant == port.name) {
            (false, _) => String::new(),
            (true, true) => ", governed".to_owned(),
            (true, false) => format!(", governed, tenant {}", port.tenant),
        };
        let thread = port.thread.filter(|_| config.threads.len() > 1);
        let thread = thread.map_or(String::new(), |thread| format!(", thread {thread}"));
        text += &format!("port {}: {kind}{governed}{thread}\n", port.name);
    }
    for adapter in config.adapters.iter().filter(|it| it.pfc.is_some()) {
        let interface = &adapter.interface;
        text += &format!("adapter {interface}: PFC on for the lossless priorities\n");
    }
    text
}

/// The flow control of a cable whose sizes are decided here.
fn flow(wanted: &Wanted) -> String {
    let plan = wanted.pfc.and_then(|pfc| pfc.plan(wanted.layout).ok());
    plan.map_or_else(String::new, |plan| {
        format!(
            ", PFC: pauses above {} bytes of a priority, headroom {} bytes",
            plan.thresholds.xoff_bytes, plan.headroom_bytes
        )
    })
}

fn answer(question: &Question, ask: Ask, text: fn(&Value) -> String) -> Result<(), Failure> {
    let value = control::ask(&question.socket, ask).map_err(refused)?;
    if question.json {
        return output::print(&format!("{value:#}\n"));
    }
    output::print(&text(&value))
}

/// A file with errors is what it is where the switch itself has read it, too.
fn refused(error: anyhow::Error) -> Failure {
    match error.downcast::<Refused>() {
        Ok(refused) if refused.remedy == Remedy::Input => Failure::BadInput(refused.error),
        Ok(refused) => Failure::Failed(refused.into()),
        Err(error) => Failure::Failed(error),
    }
}

fn count(value: &Value, key: &str) -> String {
    value[key]
        .as_u64()
        .map_or("–".to_owned(), |count| count.to_string())
}

fn word(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn yes(value: &Value, key: &str, yes: &str, no: &str) -> String {
    let is = value[key].as_bool() == Some(true);
    if is { yes } else { no }.to_owned()
}

fn time(value: &Value, key: impl serde_json::value::Index) -> String {
    let time = value[key].as_u64().map(Duration::from_nanos);
    time.map_or("–".to_owned(), |time| {
        let rounded = Duration::from_millis(time.as_millis() as u64);
        format_duration(if rounded.is_zero() { time } else { rounded })
    })
}

fn rows(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn show(value: &Value) -> String {
    let kind = match value["lossless"].as_array() {
        None => yes(value, "lossless", "lossless", "lossy"),
        Some(listed) => {
            let listed: Vec<_> = listed.iter().map(Value::to_string).collect();
            format!("lossless priorities {}, others lossy", listed.join(", "))
        }
    };
    let interfaces = rows(&value["interfaces"]).iter().map(|it| {
        let (interface, lossless) = (word(it, "interface"), word(it, "lossless"));
        format!("interface {interface}: {lossless}\n")
    });
    let interfaces: String = interfaces.collect();
    let whole = format!(
        "{kind}, process {} (version {}) runs for {}\n{}{} of {} ports are up, {} addresses ({} refused)\n\
         frames: {} held, {} dropped; {}\n{}{}polls: {} with frames, {} without; slept {} times\n{interfaces}",
        count(value, "pid"),
        word(value, "version"),
        time(value, "uptime_ns"),
        ingress(value),
        count(value, "ports_up"),
        count(value, "ports"),
        count(value, "addresses"),
        count(value, "addresses_refused"),
        count(value, "frames_held"),
        count(value, "frames_dropped"),
        kernel_drops(value),
        alarms(value),
        log_lines_lost(value),
        count(value, "polls_busy"),
        count(value, "polls_idle"),
        count(value, "sleeps"),
    );
    match rows(&value["threads"]) {
        [] | [_] => whole,
        threads => format!("{whole}{}", show_threads(threads)),
    }
}

/// Lines that the switch could not log, if any.
pub(crate) fn log_lines_lost(value: &Value) -> String {
    match value["log_lines_lost"].as_u64() {
        None | Some(0) => String::new(),
        Some(lost) => format!("{lost} log lines were lost\n"),
    }
}

/// What the kernel dropped at interfaces, and where that is not known.
fn kernel_drops(value: &Value) -> String {
    let known = format!(
        "the kernel dropped {}",
        count(value, "frames_dropped_by_kernel")
    );
    match names(&value["kernel_drops_unknown"]) {
        unknown if unknown.is_empty() => known,
        unknown => format!("{known}, and an unknown number at {unknown}"),
    }
}

/// Ports that have taken nothing for long, and circles of them.
fn alarms(value: &Value) -> String {
    let circles = rows(&value["circles"]).iter();
    let circles = circles.map(|it| format!("wait for each other in a circle: {}\n", names(it)));
    let circles: String = circles.collect();
    match names(&value["stalled"]) {
        stalled if stalled.is_empty() => circles,
        stalled => format!("took nothing for a second or more: {stalled}\n{circles}"),
    }
}

/// A list of names.
fn names(value: &Value) -> String {
    let names: Vec<_> = rows(value).iter().filter_map(Value::as_str).collect();
    names.join(", ")
}

/// Each thread: its CPU if it stays on one, its CPU time, and its ports.
fn show_threads(threads: &[Value]) -> String {
    let head = [
        ("thread", Align::Right),
        ("CPU", Align::Right),
        ("CPU time", Align::Right),
        ("polls with frames", Align::Right),
        ("without", Align::Right),
        ("slept", Align::Right),
        ("ports", Align::Left),
    ];
    let row = |(number, thread): (usize, &Value)| {
        let ports = rows(&thread["ports"]).iter().filter_map(Value::as_str);
        vec![
            number.to_string(),
            count(thread, "cpu"),
            time(thread, "cpu_time_ns"),
            count(thread, "polls_busy"),
            count(thread, "polls_idle"),
            count(thread, "sleeps"),
            ports.collect::<Vec<_>>().join(" "),
        ]
    };
    let rows: Vec<_> = threads.iter().enumerate().map(row).collect();
    table(&head, &rows)
}

/// Which ports lose nothing before the switch has it, and of which the kernel may drop.
pub(crate) fn ingress(value: &Value) -> String {
    let all = rows(&value["ingress"]);
    let listed = |is_lossless: bool| {
        let some = all.iter().filter(|it| it["lossless"] == is_lossless);
        let names = some.map(|it| match (is_lossless, it["about"].as_str()) {
            (true, _) => word(it, "name"),
            (false, None) => format!("{} ({})", word(it, "name"), word(it, "kind")),
            (false, Some(about)) => {
                format!("{} ({}, {about})", word(it, "name"), word(it, "kind"))
            }
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let mut text = String::new();
    for (is_lossless, kind) in [(true, "lossless"), (false, "lossy")] {
        let names = listed(is_lossless);
        if !names.is_empty() {
            text += &format!("{kind} ingress: {names}\n");
        }
    }
    text
}

fn ports(value: &Value) -> String {
    let head = [
        ("port", Align::Left),
        ("kind", Align::Left),
        ("state", Align::Left),
        ("ingress", Align::Left),
        ("from it", Align::Right),
        ("bytes", Align::Right),
        ("to it", Align::Right),
        ("bytes", Align::Right),
        ("dropped", Align::Right),
    ];
    let bytes = |port: &Value, key: &str| format_bytes(port[key].as_u64().unwrap_or(0));
    let row = |port: &Value| {
        vec![
            word(port, "name"),
            match port["xdp"]["zero_copy"].as_bool() {
                Some(true) => "xdp, zero-copy".to_owned(),
                Some(false) => "xdp, copy".to_owned(),
                None => word(port, "kind"),
            },
            match port["closed"].as_str() {
                Some(reason) => format!("closed: {reason}"),
                None => yes(port, "up", "up", "down"),
            },
            yes(port, "lossless_ingress", "lossless", "lossy"),
            count(port, "received_frames"),
            bytes(port, "received_bytes"),
            count(port, "delivered_frames"),
            bytes(port, "delivered_bytes"),
            count(port, "dropped"),
        ]
    };
    let lines: Vec<_> = rows(value).iter().map(row).collect();
    let mut text = table(&head, &lines);
    for port in rows(value) {
        text += &pauses(port);
    }
    text
}

/// Numbers in a row, or a word for none.
fn listed(value: &Value) -> String {
    let listed: Vec<_> = rows(value).iter().map(Value::to_string).collect();
    match listed.is_empty() {
        true => "none".to_owned(),
        false => listed.join(", "),
    }
}

/// Flow control by priority at a port that has it.
fn pauses(port: &Value) -> String {
    let pfc = &port["pfc"];
    if pfc.is_null() {
        return String::new();
    }
    let times = rows(&pfc["paused_ns"]).iter().enumerate();
    let times = times.filter(|(_, time)| time.as_u64() != Some(0));
    let times: Vec<_> = times
        .map(|(priority, _)| format!("{priority} for {}", time(&pfc["paused_ns"], priority)))
        .collect();
    let times = match times.is_empty() {
        true => String::new(),
        false => format!("; paused so far: {}", times.join(", ")),
    };
    format!(
        "{}: PFC: paused by its peer: {}, pauses its peer: {}; frames: {} sent, {} received, {} malformed{times}\n",
        word(port, "name"),
        listed(&pfc["paused"]),
        listed(&pfc["asked"]),
        count(pfc, "frames_sent"),
        count(pfc, "frames_received"),
        count(pfc, "frames_malformed"),
    )
}

fn queues(value: &Value) -> String {
    if rows(value).is_empty() {
        return "no sender waits\n".to_owned();
    }
    let head = [
        ("receiver", Align::Left),
        ("has no room for", Align::Right),
        ("senders that wait (frames)", Align::Left),
        ("", Align::Left),
    ];
    let row = |queue: &Value| {
        let senders = rows(&queue["senders"]).iter();
        let senders: Vec<_> = senders
            .map(|sender| format!("{} ({})", word(sender, "port"), count(sender, "frames")))
            .collect();
        vec![
            word(queue, "receiver"),
            time(queue, "waits_ns"),
            senders.join(", "),
            match (
                rows(&queue["stopped"]).is_empty(),
                queue["in_circle"].as_bool(),
            ) {
                (_, Some(true)) => "they wait in a circle".to_owned(),
                (false, _) => format!("paused priorities: {}", listed(&queue["stopped"])),
                (true, _) => String::new(),
            },
        ]
    };
    let rows: Vec<_> = rows(value).iter().map(row).collect();
    table(&head, &rows)
}

fn drops(value: &Value) -> String {
    let mut text = String::new();
    for port in rows(value) {
        let reasons = port["drops"].as_object().into_iter().flatten();
        let unknown = port["kernel_unknown"].as_str();
        let unknown = unknown.map(|reason| format!("kernel unknown ({reason})"));
        let some: Vec<_> = reasons
            .filter(|(_, count)| count.as_u64().is_some_and(|count| count > 0))
            .map(|(reason, count)| format!("{reason} {count}"))
            .chain(unknown)
            .collect();
        let some = if some.is_empty() {
            "none".to_owned()
        } else {
            some.join(", ")
        };
        text += &format!("{}: {some}\n", word(port, "name"));
    }
    text
}

fn addresses(value: &Value) -> String {
    let head = [
        ("vlan", Align::Right),
        ("address", Align::Left),
        ("port", Align::Left),
        ("seen", Align::Right),
    ];
    let row = |entry: &Value| {
        vec![
            count(entry, "vlan"),
            word(entry, "address"),
            word(entry, "port"),
            format!("{} ago", time(entry, "age_ns")),
        ]
    };
    let rows: Vec<_> = rows(value).iter().map(row).collect();
    table(&head, &rows)
}

fn reloaded(value: &Value) -> String {
    let names = |key: &str| {
        let names = rows(&value[key]).iter().filter_map(Value::as_str);
        let names: Vec<_> = names.collect();
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    let policy = match (value["policy"].as_bool(), count(value, "flows_rematched")) {
        (Some(true), flows) => format!("policy: changed, {flows} flows have another rule\n"),
        _ => String::new(),
    };
    let restart = match value["needs_restart"].as_bool() {
        Some(true) => "[switch] has changed: that needs a restart\n",
        _ => "",
    };
    format!(
        "added: {}; removed: {}; changed: {}\n{policy}{restart}",
        names("added"),
        names("removed"),
        names("changed")
    )
}
