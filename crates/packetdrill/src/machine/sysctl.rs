//! Kernel parameters that an endpoint knows.

use sluicegate_core::cc::{Algorithm, Stack as Origin};
use sluicegate_tcp::config::{Buffer, Ecn, OptionUse};

use super::{Machine, Stack, number};
use crate::{Step, Stop, fast_open, memory::Memory};

/// Parameters that play no part here: segmentation offload, memory, statistics, other protocols.
const IGNORED: [&str; 18] = [
    "tcp_tso_win_divisor",
    "tcp_tso_rtt_log",
    "tcp_limit_output_bytes",
    "tcp_pacing_ss_ratio",
    "tcp_pacing_ca_ratio",
    "tcp_moderate_rcvbuf",
    "tcp_no_metrics_save",
    "tcp_fack",
    "tcp_autocorking",
    "tcp_thin_linear_timeouts",
    "tcp_comp_sack_delay_ns",
    "tcp_comp_sack_slack_ns",
    "tcp_comp_sack_nr",
    "tcp_challenge_ack_limit",
    "tcp_retries1",
    "tcp_mem",
    "tcp_fastopen_blackhole_timeout_sec",
    "tcp_available_congestion_control",
];

/// Parameters that Linux does not have: of Google's own kernels.
const ABSENT: [&str; 1] = ["net.ipv4.tcp_fastopen_cookies"];

/// Whether setting `pairs` sets nothing, because Linux has none of these parameters.
pub(super) fn all_absent(pairs: &[(String, String)]) -> bool {
    !pairs.is_empty() && pairs.iter().all(|(key, _)| ABSENT.contains(&key.as_str()))
}

impl Machine {
    /// Sets a kernel parameter; `key` has points.
    pub(super) fn sysctl(&mut self, line: usize, key: &str, value: &str) -> Step {
        if self.stack == Stack::Freebsd {
            return self.freebsd_sysctl(line, key, value);
        }
        let Some(name) = key.strip_prefix("net.ipv4.") else {
            let ignored = [
                "net.core.rmem_max",
                "net.core.wmem_max",
                "net.core.default_qdisc",
            ];
            return match ignored.contains(&key) {
                true => Ok(()),
                false => Stop::unsupported(line, format!("parameter {key}")),
            };
        };
        if IGNORED.contains(&name) {
            return Ok(());
        }
        let config = &mut self.config;
        match name {
            "tcp_ecn" => config.ecn = ecn(line, value)?,
            "tcp_ecn_option" => config.accurate.option = option_use(line, value)?,
            "tcp_ecn_option_beacon" => {
                config.accurate.beacon = number(line, value, 0, 255)? as u8;
            }
            "tcp_ecn_fallback" => config.accurate.fallback = switch(line, value)?,
            "tcp_syn_linear_timeouts" => {
                config.rto.linear_syns = number(line, value, 0, 127)? as u8;
            }
            "tcp_sack" => config.sack = switch(line, value)?,
            "tcp_timestamps" => config.timestamps = switch(line, value)?,
            "tcp_window_scaling" => config.window_scaling = switch(line, value)?,
            "tcp_slow_start_after_idle" => config.restart_after_idle = switch(line, value)?,
            "tcp_rmem" => config.receive_buffer = buffer(line, value)?,
            "tcp_wmem" => config.send_buffer = buffer(line, value)?,
            "tcp_shrink_window" => {
                let shrinks = switch(line, value)?;
                if let Some(counted) = &mut config.counted {
                    counted.shrinks = shrinks;
                }
            }
            "tcp_syncookies" => self.syn_cookies = number(line, value, 0, 2)? == 2,
            "tcp_retries2" => config.retries = number(line, value, 1, 255)? as u8,
            "tcp_syn_retries" => config.syn_retries = number(line, value, 1, 127)? as u8,
            "tcp_synack_retries" => config.answer_retries = number(line, value, 0, 255)? as u8,
            "tcp_rto_min_us" => {
                config.rto.min_ns = number(line, value, 1, 120_000_000)? as u64 * 1_000
            }
            "tcp_invalid_ratelimit" => {
                config.challenge_ns = number(line, value, 0, 1_000_000)? as u64 * 1_000_000
            }
            "tcp_rto_max_ms" => {
                config.rto.max_ns = number(line, value, 1_000, 120_000)? as u64 * 1_000_000
            }
            "tcp_min_tso_segs" => {
                let segments = number(line, value, 1, 65_535)?.max(2) as u64;
                self.memory = Memory::Packets { segments };
            }
            "tcp_notsent_lowat" => {
                self.notsent_lowat = number(line, value, 0, u32::MAX.into())? as u32;
            }
            "tcp_fastopen" => self.fast_open.bits = bits(line, value)?,
            "tcp_fastopen_key" => match fast_open::key(value) {
                Some(key) => self.fast_open.key = key,
                None => return Stop::unsupported(line, format!("{value:?} is no key")),
            },
            "tcp_tw_reuse" => self.reuse.enabled = number(line, value, 0, 2)? == 1,
            "tcp_tw_reuse_delay" => {
                self.reuse.delay_ns = number(line, value, 1, 60_000)? as u64 * 1_000_000;
            }
            "tcp_keepalive_time" => self.keepalive.idle_s = seconds(line, value)?,
            "tcp_keepalive_intvl" => self.keepalive.interval_s = seconds(line, value)?,
            "tcp_keepalive_probes" => self.keepalive.count = number(line, value, 1, 127)? as u32,
            "tcp_congestion_control" => config.algorithm = algorithm(line, value)?,
            "tcp_recovery" => self.rack = number(line, value, 0, 1)? == 1,
            "tcp_frto" => config.frto = number(line, value, 0, 2)? > 0,
            "tcp_early_retrans" => self.tail_probe = number(line, value, 0, 4)? >= 3,
            _ => return only_default(line, name, value),
        }
        Ok(())
    }
}

/// Accepts only Linux's value of a parameter for which an endpoint has one behaviour.
fn only_default(line: usize, name: &str, value: &str) -> Step {
    let default = match name {
        "tcp_dsack" | "tcp_adv_win_scale" => "1",
        "tcp_reordering" => "3",
        "tcp_fin_timeout" => "60",
        "tcp_mtu_probing" | "tcp_abort_on_overflow" | "tcp_app_win" => "0",
        _ => return Stop::unsupported(line, format!("parameter {name}")),
    };
    if value == default {
        return Ok(());
    }
    Stop::unsupported(line, format!("parameter {name}={value}"))
}

fn seconds(line: usize, value: &str) -> Step<u32> {
    Ok(number(line, value, 1, 32_767)? as u32)
}

/// A number in decimal or hexadecimal digits.
fn bits(line: usize, value: &str) -> Step<i64> {
    match value.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16)
            .or_else(|_| Stop::unsupported(line, format!("{value:?} is no number"))),
        None => number(line, value, 0, 0xffff),
    }
}

fn switch(line: usize, value: &str) -> Step<bool> {
    Ok(number(line, value, 0, 1)? == 1)
}

fn ecn(line: usize, value: &str) -> Step<Ecn> {
    match value {
        "0" => Ok(Ecn::Off),
        "1" => Ok(Ecn::Offer),
        "2" => Ok(Ecn::Accept),
        "3" => Ok(Ecn::OfferAccurate),
        "4" => Ok(Ecn::AcceptAccurateOfferClassic),
        "5" => Ok(Ecn::AcceptAccurate),
        _ => Stop::unsupported(line, format!("parameter tcp_ecn={value}")),
    }
}

fn option_use(line: usize, value: &str) -> Step<OptionUse> {
    match value {
        "0" => Ok(OptionUse::Never),
        "1" => Ok(OptionUse::Sparing),
        "2" => Ok(OptionUse::Always),
        "3" => Ok(OptionUse::Persistent),
        _ => Stop::unsupported(line, format!("parameter tcp_ecn_option={value}")),
    }
}

/// `min default max`
fn buffer(line: usize, value: &str) -> Step<Buffer> {
    let sizes: Vec<&str> = value.split_whitespace().collect();
    let [_, initial, max] = sizes[..] else {
        return Stop::unsupported(line, format!("{value:?} is no size of buffers"));
    };
    let size = |text| number(line, text, 1, 1 << 30);
    let initial_bytes = size(initial)? as u64;
    Ok(Buffer {
        initial_bytes,
        max_bytes: (size(max)? as u64).max(initial_bytes),
    })
}

/// Congestion control by the kernel's name.
pub fn algorithm(line: usize, name: &str) -> Step<Algorithm> {
    let found =
        Algorithm::stacks(&[Origin::Linux, Origin::Module]).find(|known| known.name() == name);
    found.map_or_else(
        || Stop::unsupported(line, format!("congestion control {name}")),
        Ok,
    )
}
