//! Kernel parameters of FreeBSD that an endpoint knows: `net.inet.tcp.*`.

use sluicegate_tcp::{
    Config,
    config::{Buffer, Ecn, Recovery},
};

use super::{Keepalive, MS, Machine, Stack, number};
use crate::{Step, Stop, memory::Memory};

/// Parameters that play no part here: caches, statistics, other stacks and functions.
const IGNORED: [&str; 21] = [
    "net.inet.tcp.hostcache.purgenow",
    "net.inet.tcp.hostcache.purge",
    "net.inet.tcp.hostcache.enable",
    "net.inet.tcp.hostcache.list",
    "net.inet.tcp.functions_default",
    "net.inet.tcp.log_debug",
    "net.inet.tcp.log_in_vain",
    "net.inet.tcp.rfc6675_pipe",
    "net.inet.tcp.do_prr",
    "net.inet.tcp.do_prr_conservative",
    "net.inet.tcp.syncookies",
    "net.inet.tcp.syncookies_only",
    "net.inet.tcp.recvbuf_auto",
    "net.inet.tcp.sendbuf_auto",
    "net.inet.tcp.recvbuf_max",
    "net.inet.tcp.sendbuf_max",
    "net.inet.tcp.path_mtu_discovery",
    "net.inet.tcp.pmtud_blackhole_detection",
    "net.inet.tcp.tso",
    "net.inet.icmp.icmplim",
    "kern.ipc.soacceptqueue",
];
/// With `rexmit_drop_options` so many SYNs have options.
const DROP_OPTIONS_AFTER: u8 = 3;
/// `kern.ipc.maxsockbuf`.
const LARGEST_BUFFER: u64 = 2 << 20;

impl Machine {
    /// The profile `freebsd9` with the parameters that FreeBSD has by itself, not the thesis'.
    pub(super) fn become_freebsd(&mut self) {
        let mut config = Config::freebsd9(1460);
        config.freebsd = true;
        config.challenge_ns = 0;
        config.sack = true;
        config.recovery = Recovery::Sack;
        config.params.init_segments = 10;
        config.rto.initial_ns = 1_000 * MS;
        config.rto.min_ns = 30 * MS;
        config.rto.slop_ns = 200 * MS;
        config.rto.granularity_ns = MS;
        config.rto.linear_syns = 0; // since FreeBSD 12 SYNs back off like everything else
        config.syns_with_options = 0; // since FreeBSD 10 a parameter, and off
        config.receive_buffer = Buffer {
            initial_bytes: 65_536,
            max_bytes: LARGEST_BUFFER,
        };
        config.send_buffer = Buffer {
            initial_bytes: 32_768,
            max_bytes: LARGEST_BUFFER,
        };
        self.config = config;
        self.stack = Stack::Freebsd;
        self.memory = Memory::Bytes;
        (self.rack, self.tail_probe) = (false, false);
        self.keepalive = Keepalive {
            always: false,
            ..Keepalive::default()
        };
    }

    /// Sets a parameter.
    pub(super) fn freebsd_sysctl(&mut self, line: usize, key: &str, value: &str) -> Step {
        if IGNORED.contains(&key) {
            return Ok(());
        }
        let Some(name) = key.strip_prefix("net.inet.tcp.") else {
            return self.other_sysctl(line, key, value);
        };
        let config = &mut self.config;
        let switch = || Ok(number(line, value, 0, 1)? == 1);
        let ms = || Ok(number(line, value, 1, 1_000_000_000)? as u64 * MS);
        match name {
            "rfc1323" => {
                // 2 and 3 are one half of it.
                let bits = number(line, value, 0, 3)?;
                config.window_scaling = matches!(bits, 1 | 2);
                config.timestamps = matches!(bits, 1 | 3);
            }
            "sack.enable" => config.sack = switch()?,
            "rfc3042" => config.limited_transmit = switch()?,
            "delayed_ack" => config.delayed_ack.segments = 1 + number(line, value, 0, 1)? as u8,
            "delacktime" => config.delayed_ack.timeout_ns = ms()?,
            "rexmit_initial" => config.rto.initial_ns = ms()?,
            "rexmit_min" => config.rto.min_ns = ms()?,
            "rexmit_slop" => config.rto.slop_ns = ms()?,
            "insecure_rst" => config.insecure_rst = switch()?,
            "insecure_syn" => config.insecure_syn = switch()?,
            "initcwnd_segments" => {
                config.params.init_segments = number(line, value, 1, 64)? as u8;
            }
            "recvspace" => config.receive_buffer.initial_bytes = bytes(line, value)?,
            "sendspace" => config.send_buffer.initial_bytes = bytes(line, value)?,
            "ecn.enable" => config.ecn = ecn(line, value)?,
            "cc.algorithm" => config.algorithm = super::algorithm(line, algorithm_name(value))?,
            "udp_tunneling_port" => self.tunnel.port = number(line, value, 0, 65_535)? as u16,
            "udp_tunneling_overhead" => {
                self.tunnel.overhead = number(line, value, 8, 1_024)? as u16;
            }
            "icmp_may_rst" => self.icmp_resets = switch()?,
            _ => return self.freebsd_timer(line, name, value),
        }
        Ok(())
    }

    /// Parameters of keepalives, in ms, of rare cases, and those with one value.
    fn freebsd_timer(&mut self, line: usize, name: &str, value: &str) -> Step {
        let seconds = || Ok::<_, Stop>(number(line, value, 1, i64::from(i32::MAX))? as u32 / 1_000);
        match name {
            "keepidle" => self.keepalive.idle_s = seconds()?,
            "keepintvl" => self.keepalive.interval_s = seconds()?,
            "keepinit" => self.keepalive.init_s = seconds()?,
            "keepcnt" => self.keepalive.count = number(line, value, 1, 255)? as u32,
            "always_keepalive" => self.keepalive.always = number(line, value, 0, 1)? == 1,
            "drop_synfin" => self.drop_synfin = number(line, value, 0, 1)? == 1,
            "rexmit_drop_options" => {
                let drops = number(line, value, 0, 1)? == 1;
                self.config.syns_with_options = if drops { DROP_OPTIONS_AFTER } else { 0 };
            }
            "ecn.plusplus" => self.ecn_on_control = number(line, value, 0, 2)? as u8,
            "fastopen.client_enable" => self.fast_open.bits = number(line, value, 0, 1)?,
            "blackhole"
            | "udp_tunneling_port"
            | "fastopen.server_enable"
            | "fastopen.psk_enable"
            | "ecn.generalized"
                if value == "0" => {}
            "maxtcptw" | "msl" | "finwait2_timeout" => {}
            _ => return Stop::unsupported(line, format!("parameter {name}={value}")),
        }
        Ok(())
    }

    fn other_sysctl(&mut self, line: usize, key: &str, value: &str) -> Step {
        match key {
            "kern.ipc.maxsockbuf" => {
                let most = bytes(line, value)?;
                self.config.receive_buffer.max_bytes = most;
                self.config.send_buffer.max_bytes = most;
                Ok(())
            }
            _ => Stop::unsupported(line, format!("parameter {key}")),
        }
    }
}

fn bytes(line: usize, value: &str) -> Step<u64> {
    // Windows are not larger than this (RFC 7323 2.3).
    Ok((number(line, value, 1, u32::MAX.into())? as u64).min(1 << 30))
}

/// FreeBSD's name of an algorithm into ours.
fn algorithm_name(value: &str) -> &str {
    match value {
        "newreno" => "reno",
        other => other,
    }
}

fn ecn(line: usize, value: &str) -> Step<Ecn> {
    match value {
        "0" => Ok(Ecn::Off),
        "1" => Ok(Ecn::Offer),
        "2" => Ok(Ecn::Accept),
        _ => Stop::unsupported(line, format!("parameter ecn.enable={value}")),
    }
}
