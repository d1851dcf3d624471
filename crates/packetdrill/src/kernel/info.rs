//! `struct tcp_info` and `SO_MEMINFO` of a socket, by the names that scripts have.

use std::os::fd::BorrowedFd;

use super::sys;

/// More than the structure has.
const INFO_MAX: usize = 512;
const TCP_INFO: i32 = 11;
const SO_MEMINFO: i32 = 55;

/// Name, offset and length of a field (`include/uapi/linux/tcp.h` of Linux 6.18).
const FIELDS: [(&str, usize, usize); 55] = [
    ("tcpi_state", 0, 1),
    ("tcpi_ca_state", 1, 1),
    ("tcpi_retransmits", 2, 1),
    ("tcpi_probes", 3, 1),
    ("tcpi_backoff", 4, 1),
    ("tcpi_options", 5, 1),
    ("tcpi_rto", 8, 4),
    ("tcpi_ato", 12, 4),
    ("tcpi_snd_mss", 16, 4),
    ("tcpi_rcv_mss", 20, 4),
    ("tcpi_unacked", 24, 4),
    ("tcpi_sacked", 28, 4),
    ("tcpi_lost", 32, 4),
    ("tcpi_retrans", 36, 4),
    ("tcpi_last_data_sent", 44, 4),
    ("tcpi_last_data_recv", 52, 4),
    ("tcpi_last_ack_recv", 56, 4),
    ("tcpi_pmtu", 60, 4),
    ("tcpi_rcv_ssthresh", 64, 4),
    ("tcpi_rtt", 68, 4),
    ("tcpi_rttvar", 72, 4),
    ("tcpi_snd_ssthresh", 76, 4),
    ("tcpi_snd_cwnd", 80, 4),
    ("tcpi_advmss", 84, 4),
    ("tcpi_reordering", 88, 4),
    ("tcpi_rcv_rtt", 92, 4),
    ("tcpi_rcv_space", 96, 4),
    ("tcpi_total_retrans", 100, 4),
    ("tcpi_pacing_rate", 104, 8),
    ("tcpi_max_pacing_rate", 112, 8),
    ("tcpi_bytes_acked", 120, 8),
    ("tcpi_bytes_received", 128, 8),
    ("tcpi_segs_out", 136, 4),
    ("tcpi_segs_in", 140, 4),
    ("tcpi_notsent_bytes", 144, 4),
    ("tcpi_min_rtt", 148, 4),
    ("tcpi_data_segs_in", 152, 4),
    ("tcpi_data_segs_out", 156, 4),
    ("tcpi_delivery_rate", 160, 8),
    ("tcpi_busy_time", 168, 8),
    ("tcpi_rwnd_limited", 176, 8),
    ("tcpi_sndbuf_limited", 184, 8),
    ("tcpi_delivered", 192, 4),
    ("tcpi_delivered_ce", 196, 4),
    ("tcpi_bytes_sent", 200, 8),
    ("tcpi_bytes_retrans", 208, 8),
    ("tcpi_dsack_dups", 216, 4),
    ("tcpi_reord_seen", 220, 4),
    ("tcpi_received_ce", 248, 4),
    ("tcpi_delivered_e1_bytes", 252, 4),
    ("tcpi_delivered_e0_bytes", 256, 4),
    ("tcpi_delivered_ce_bytes", 260, 4),
    ("tcpi_received_e1_bytes", 264, 4),
    ("tcpi_received_e0_bytes", 268, 4),
    ("tcpi_received_ce_bytes", 272, 4),
];
/// The same of AccECN, the last ones.
const ACCURATE: [(&str, usize, usize); 2] = [
    ("tcpi_accecn_fail_mode", 276, 2),
    ("tcpi_accecn_opt_seen", 278, 2),
];
/// Both are in this byte.
const SCALES: usize = 6;
/// Places in `SO_MEMINFO`.
const MEMORY: [(&str, usize); 9] = [
    ("SK_MEMINFO_RMEM_ALLOC", 0),
    ("SK_MEMINFO_RCVBUF", 1),
    ("SK_MEMINFO_WMEM_ALLOC", 2),
    ("SK_MEMINFO_SNDBUF", 3),
    ("SK_MEMINFO_FWD_ALLOC", 4),
    ("SK_MEMINFO_WMEM_QUEUED", 5),
    ("SK_MEMINFO_OPTMEM", 6),
    ("SK_MEMINFO_BACKLOG", 7),
    ("SK_MEMINFO_DROPS", 8),
];

/// What the kernel says of a socket.
pub struct Info {
    tcp: Vec<u8>,
    memory: Vec<u8>,
}

impl Info {
    pub fn of(socket: BorrowedFd<'_>) -> Self {
        let ask = |level: i32, name: i32| {
            let mut bytes = vec![0; INFO_MAX];
            let len = sys::get_option(socket, level, name, &mut bytes).unwrap_or(0);
            bytes.truncate(usize::try_from(len).unwrap_or(0));
            bytes
        };
        Self {
            tcp: ask(libc::SOL_TCP, TCP_INFO),
            memory: ask(libc::SOL_SOCKET, SO_MEMINFO),
        }
    }

    /// The value of a name in code.
    pub fn value(&self, name: &str) -> Option<i64> {
        if let Some((_, place)) = MEMORY.iter().find(|(known, _)| *known == name) {
            return number(&self.memory, place * 4, 4);
        }
        match name {
            "tcpi_snd_wscale" => return Some(number(&self.tcp, SCALES, 1)? & 15),
            "tcpi_rcv_wscale" => return Some(number(&self.tcp, SCALES, 1)? >> 4),
            _ => (),
        }
        let mut known = FIELDS.iter().chain(&ACCURATE);
        let (_, at, len) = known.find(|(known, ..)| *known == name)?;
        number(&self.tcp, *at, *len)
    }
}

/// Least significant byte first, as on the machines that this is for.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<i64> {
    let bytes = bytes.get(at..at + len)?;
    let value = bytes
        .iter()
        .rev()
        .fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    i64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_structure_has_them() {
        let mut tcp: Vec<u8> = (0..248_u32).map(|at| at as u8).collect();
        tcp[SCALES] = 0x7a;
        let info = Info {
            tcp,
            memory: vec![1, 0, 0, 0, 2, 0, 0, 0],
        };
        assert_eq!(info.value("tcpi_snd_cwnd"), Some(0x5352_5150));
        assert_eq!(
            (info.value("tcpi_snd_wscale"), info.value("tcpi_rcv_wscale")),
            (Some(10), Some(7))
        );
        assert_eq!(info.value("SK_MEMINFO_RCVBUF"), Some(2));
        assert_eq!(info.value("SK_MEMINFO_SNDBUF"), None);
        // An older kernel ends before it.
        assert_eq!(info.value("tcpi_received_ce"), None);
        assert_eq!(info.value("tcpi_nothing"), None);
    }
}
