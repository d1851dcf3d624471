//! ICMP messages about segments of ours (RFC 1122 4.2.3.9, RFC 5927).

use sluicegate_tcp::State;

use crate::{
    Step,
    host::Host,
    machine::Stack,
    model::{Icmp, IcmpMeaning},
};

/// The least MTU that is believed (RFC 791, RFC 8200).
const LEAST_MTU: u16 = 68;

impl Host {
    /// Segments become no larger than what is known of the path.
    pub fn respect_path_mtu(&mut self) {
        let (Some(mtu), Some(connection)) = (self.path_mtu, &mut self.connection) else {
            return;
        };
        let options = match connection.endpoint.info().timestamps {
            true => 12,
            false => 0,
        };
        let around = match connection.options.tunnel {
            0 => options,
            _ => options + u32::from(self.tunnel.overhead),
        };
        let mss = u32::from(mtu - self.header).saturating_sub(around);
        connection.endpoint.shrink_segments(mss.max(1));
        if self.stack == Stack::Linux {
            connection.endpoint.open_smaller(mtu - self.header);
        }
    }

    /// A message arrives; one that quotes nothing that is out is ignored.
    pub fn hear_icmp(&mut self, icmp: Icmp) -> Step {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        if icmp.udp != connection.options.udp(self.tunnel.port) {
            return Ok(());
        }
        let (una, nxt) = (connection.una, connection.nxt);
        let inside = |seq: u32| match self.stack {
            Stack::Linux => seq.wrapping_sub(una) <= nxt.wrapping_sub(una),
            Stack::Freebsd => seq.wrapping_sub(una) < nxt.wrapping_sub(una),
        };
        if !icmp.seq.is_none_or(inside) {
            self.strange_icmp += 1;
            return Ok(());
        }
        match icmp.meaning {
            IcmpMeaning::Nothing => (),
            IcmpMeaning::TooBig(mtu) => {
                self.path_mtu = Some(mtu.max(LEAST_MTU.max(self.header + 1)));
                self.respect_path_mtu();
            }
            IcmpMeaning::Lost { linux, freebsd } => {
                let opening = matches!(
                    connection.endpoint.state(),
                    State::SynSent | State::SynReceived
                );
                let error = match self.stack {
                    Stack::Linux => Some(linux),
                    Stack::Freebsd => freebsd.filter(|_| self.icmp_resets),
                };
                if let Some(error) = error.filter(|_| opening) {
                    let events = connection.endpoint.cut_off();
                    connection.note(events);
                    connection.error = Some(error);
                }
            }
        }
        self.pump()
    }
}
