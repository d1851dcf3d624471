//! The machine that a script asks for: its options, and what its shell commands would have set.

mod freebsd;
mod shell;
mod sysctl;

pub use sysctl::algorithm;

use sluicegate_core::cc::Algorithm;
use sluicegate_tcp::{
    Config,
    config::{Buffer, Counted, Ecn, Recovery},
};

use crate::{
    Settings, Step, Stop, fast_open,
    memory::Memory,
    model::{Action, Script},
};
pub use shell::Check;
#[cfg(target_os = "linux")]
pub use shell::{Meaning, commands, understand};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Headers without options.
const IPV4: i64 = 40;
const IPV6: i64 = 60;
/// The size to which Linux raises its least send buffer as soon as a connection is established:
/// room for twice the initial window, with the kernel's own share.
const SEND_BUFFER: u64 = 87_040;
/// Linux's `tcp_syn_linear_timeouts`.
const LINEAR_SYNS: u8 = 4;
/// The key of fast open's cookies in `defaults.sh`.
const DEFAULT_KEY: &str = "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4";

/// The kernel that an endpoint plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    Linux,
    Freebsd,
}

/// When idle peers are probed, where a socket does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// On every socket.
    pub always: bool,
    pub idle_s: u32,
    pub interval_s: u32,
    pub count: u32,
    /// For how long a connection may be opening.
    pub init_s: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            always: false,
            idle_s: 7_200,
            interval_s: 75,
            count: 8,
            init_s: 75,
        }
    }
}

/// When a port may be used again after TIME-WAIT (`net.ipv4.tcp_tw_reuse`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    pub enabled: bool,
    pub delay_ns: u64,
}

/// TCP in UDP (FreeBSD's `net.inet.tcp.udp_tunneling_*`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Tunnel {
    /// The host's UDP port; 0 = off.
    pub port: u16,
    /// Bytes of each segment that it takes.
    pub overhead: u16,
}

/// A machine, ready to run.
#[derive(Clone, Debug)]
pub struct Machine {
    pub config: Config,
    pub stack: Stack,
    pub memory: Memory,
    /// `net.ipv4.tcp_notsent_lowat`, in bytes.
    pub notsent_lowat: u32,
    pub keepalive: Keepalive,
    pub fast_open: fast_open::Settings,
    pub reuse: Reuse,
    /// Every SYN is answered by a cookie (`tcp_syncookies = 2`).
    pub syn_cookies: bool,
    /// ICMP errors end a connection that is opening (`net.inet.tcp.icmp_may_rst`).
    pub icmp_resets: bool,
    /// Segments with both SYN and FIN are dropped (`net.inet.tcp.drop_synfin`).
    pub drop_synfin: bool,
    /// ECN on packets without data (`net.inet.tcp.ecn.plusplus`): 1 on SYN-ACKs (RFC 5562), 2 on
    /// all and on what is sent again.
    pub ecn_on_control: u8,
    pub tunnel: Tunnel,
    /// The tolerance of a time.
    pub tolerance_ns: u64,
    /// The same as a part of the time since the last event, in parts of a thousand.
    pub tolerance_permille: u64,
    /// A tick of the scripts' timestamps; 0 = TSval is not compared.
    pub ts_tick_ns: u64,
    /// A line of a script is one segment, never several that left together.
    pub strict_segments: bool,
    mtu: i64,
    header: i64,
    /// `net.ipv4.tcp_recovery` and `tcp_early_retrans`.
    rack: bool,
    tail_probe: bool,
}

impl Machine {
    /// From the script's options, the caller's, and the commands before the first event.
    pub fn new(script: &Script, settings: &Settings) -> Step<Self> {
        let mut config = Config::linux(1460);
        config.send_buffer.initial_bytes = SEND_BUFFER;
        config.rto.linear_syns = LINEAR_SYNS;
        config.delayed_ack.fin = true;
        config.counted = Some(Counted {
            offload_bytes: u16::MAX,
            locked: false,
            shrinks: false,
        });
        let mut machine = Self {
            config,
            stack: Stack::Linux,
            memory: Memory::Packets { segments: 2 },
            notsent_lowat: u32::MAX,
            keepalive: Keepalive {
                count: 9,
                ..Keepalive::default()
            },
            fast_open: fast_open::Settings::default(),
            reuse: Reuse {
                enabled: false, // but between sockets of this host
                delay_ns: 1_000 * MS,
            },
            syn_cookies: false,
            icmp_resets: true,
            drop_synfin: false,
            ecn_on_control: 0,
            tunnel: Tunnel::default(),
            tolerance_ns: 4_000 * US,
            tolerance_permille: 125,
            ts_tick_ns: 0,
            strict_segments: false,
            mtu: 1500,
            header: IPV4,
            rack: true,
            tail_probe: true,
        };
        let freebsd = match &settings.stack {
            Some(stack) => stack == "freebsd9",
            None => speaks_freebsd(script),
        };
        if freebsd {
            machine.become_freebsd();
        }
        let says_version = script.options.iter().map(|(_, name, _)| name);
        let says_version = says_version.chain(settings.options.iter().map(|(name, _)| name));
        if settings.ipv6 && !says_version.into_iter().any(|name| name == "ip_version") {
            machine.option(0, "ip_version", "ipv6")?;
            machine.option(0, "mtu", "1520")?;
        }
        for (line, name, value) in &script.options {
            machine.option(*line, name, value.as_deref().unwrap_or(""))?;
        }
        for (name, value) in &settings.options {
            machine.option(0, name, value)?;
        }
        for (line, command) in &script.setup {
            machine.shell(*line, command)?;
        }
        machine.set_recovery(script.setup.first().map_or(0, |(line, _)| *line))?;
        Ok(machine)
    }

    /// Sets loss recovery from the settings of RACK and of tail loss probes.
    fn set_recovery(&mut self, line: usize) -> Step {
        self.config.recovery = match (self.rack, self.tail_probe) {
            (true, _) => Recovery::Rack,
            (false, false) => Recovery::Sack,
            (false, true) => {
                return Stop::unsupported(line, "tail loss probes without RACK (RFC 8985)");
            }
        };
        self.config.tail_probe = self.tail_probe;
        // Where packets are paced one has as many segments as one has at least.
        if let (true, Memory::Packets { segments }) = (self.config.pacing, self.memory) {
            self.config.burst_segments = segments.min(64) as u8;
        }
        Ok(())
    }

    /// `--name=value`
    fn option(&mut self, line: usize, name: &str, value: &str) -> Step {
        match name {
            "tolerance_usecs" => {
                self.tolerance_ns = number(line, value, 1, 10_000_000)? as u64 * US
            }
            "tolerance_percent" => self.tolerance_permille = permille(line, value)?,
            "tcp_ts_tick_usecs" => self.ts_tick_ns = number(line, value, 0, 1_000_000)? as u64 * US,
            "mtu" => self.mtu = number(line, value, 68, 65_535)?,
            "ip_version" => self.header = if value == "ipv6" { IPV6 } else { IPV4 },
            "local_ip" => self.fast_open.local = address(value).unwrap_or(self.fast_open.local),
            "remote_ip" => self.fast_open.remote = address(value).unwrap_or(self.fast_open.remote),
            "mss" => {
                let bytes = number(line, value, 1, 65_535)? as u16;
                if let Some(counted) = &mut self.config.counted {
                    counted.offload_bytes = bytes;
                }
            }
            "udp_encapsulation" if value == "tcp" => return Ok(()), // packets say it themselves
            "strict_segments" => self.strict_segments = true,
            // A parameter of the machine before the script: `--sysctl=net.ipv4.tcp_sack=0`.
            "sysctl" => match value.split_once('=') {
                Some((key, value)) => return self.sysctl(line, key, value),
                None => return Stop::unsupported(line, "--sysctl without a value"),
            },
            "bind_port" | "connect_port" | "gateway_ip" | "netmask_ip" | "speed" | "verbose"
            | "debug" | "tcp_ts_ecr_scaled" | "is_anyip" | "send_omit_free" => {
                return Ok(());
            }
            _ => return Stop::unsupported(line, format!("option --{name}")),
        }
        self.set_mss(line)
    }

    /// The tolerance of a time that is `elapsed_ns` after the last event.
    pub fn tolerance(&self, elapsed_ns: u64) -> u64 {
        let share_ns = elapsed_ns / 1_000 * self.tolerance_permille;
        self.tolerance_ns.max(share_ns)
    }

    /// The MTU of the interface, in bytes of IP.
    pub fn mtu(&self) -> i64 {
        self.mtu
    }

    /// Bytes of the headers of IP and TCP without options.
    pub fn header(&self) -> u16 {
        self.header as u16
    }

    fn set_mss(&mut self, line: usize) -> Step {
        let mss = self.mtu - self.header;
        if mss < 1 {
            return Stop::unsupported(line, "the MTU leaves no room for data");
        }
        self.config.mss = mss as u16;
        Ok(())
    }

    /// Commands of a shell, as far as they set what an endpoint knows; what they check of the
    /// connection is left to the caller.
    pub fn shell(&mut self, line: usize, script: &str) -> Step<Vec<(usize, Check)>> {
        let mut checks = Vec::new();
        for (offset, command) in shell::commands(script) {
            let line = line + offset;
            checks.append(&mut self.command(line, &command)?);
        }
        self.set_recovery(line)?;
        Ok(checks)
    }

    /// One command. Of `a || b` the second counts where the first sets a parameter that Linux does
    /// not have, and nothing else.
    fn command(&mut self, line: usize, command: &str) -> Step<Vec<(usize, Check)>> {
        if let Some((first, second)) = command.split_once("||") {
            let (first, second) = (first.trim(), second.trim());
            return match shell::understand(first) {
                shell::Meaning::Set(pairs) if sysctl::all_absent(&pairs) => {
                    self.command(line, second)
                }
                // Whether it fails is known only when it runs.
                shell::Meaning::Check(check) if check.may_fail() => {
                    Stop::unsupported(line, format!("command {first} || {second}"))
                }
                _ => self.command(line, first),
            };
        }
        let mut checks = Vec::new();
        match shell::understand(command) {
            shell::Meaning::Nothing => (),
            shell::Meaning::Defaults { google } => self.defaults(google),
            shell::Meaning::Pace(pace) => self.config.pacing = pace,
            shell::Meaning::Set(pairs) => {
                for (key, value) in pairs {
                    self.sysctl(line, &key, &value)?;
                }
            }
            shell::Meaning::InitialWindow(segments) => self.config.params.init_segments = segments,
            shell::Meaning::Mtu(bytes) => {
                self.mtu = i64::from(bytes);
                self.set_mss(line)?;
            }
            shell::Meaning::Check(check) => checks.push((line, check)),
            shell::Meaning::Unknown => {
                return Stop::unsupported(line, format!("command {command}"));
            }
        }
        Ok(checks)
    }

    /// Applies the settings of `defaults.sh` of Linux's suite or of Google's.
    fn defaults(&mut self, google: bool) {
        self.config.algorithm = Algorithm::Cubic;
        self.config.ecn = Ecn::Off;
        self.config.timestamps = true;
        self.config.sack = true;
        self.config.restart_after_idle = false;
        self.config.receive_buffer = Buffer {
            initial_bytes: 540_000,
            max_bytes: 15 << 20,
        };
        self.config.send_buffer = Buffer {
            initial_bytes: 256 << 10,
            max_bytes: 4 << 20,
        };
        (self.rack, self.tail_probe) = (true, true);
        self.fast_open.bits = if google { 0x403 } else { 3 };
        self.fast_open.key = fast_open::key(DEFAULT_KEY).unwrap_or_default();
    }
}

/// A script of FreeBSD's suite names its parameters.
fn speaks_freebsd(script: &Script) -> bool {
    let names = |text: &str| text.contains("net.inet.") || text.contains("kern.ipc.");
    let mut setup = script.setup.iter().map(|(_, command)| command);
    let of_event = |action: &Action| matches!(action, Action::Shell(command) if names(command));
    setup.any(|command| names(command)) || script.events.iter().any(|it| of_event(&it.action))
}

/// An IPv4 address.
fn address(text: &str) -> Option<[u8; 4]> {
    text.parse().ok().map(|it: std::net::Ipv4Addr| it.octets())
}

/// A number within bounds.
fn number(line: usize, text: &str, least: i64, most: i64) -> Step<i64> {
    match text.trim().parse() {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => Stop::unsupported(
            line,
            format!("{text:?} is no number from {least} to {most}"),
        ),
    }
}

/// Percent with a fraction.
fn permille(line: usize, text: &str) -> Step<u64> {
    match text.trim().parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok((percent * 10.0).round() as u64),
        _ => Stop::unsupported(line, format!("{text:?} is no percentage")),
    }
}

#[cfg(test)]
mod tests;
