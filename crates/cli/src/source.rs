//! Where flows are asked for: enforcement in the kernel, in the userspace switch, or both.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sluicegate_agent::{
    FlowRecord, Names,
    bpffs::Pins,
    meter::{
        BucketUse, InterfaceUse, Snapshot,
        ports::{PortUse, SwitchUse},
    },
    netns::NetNs,
};
use sluicegate_core::abi::ABI_VERSION;
use sluicegate_dataplane::{
    config,
    control::{self, Ask},
    report::{PortReport, Report},
};

use crate::flows::Place;

/// What is looked at.
pub struct Source {
    place: Place,
    kernel: Option<(NetNs, Pins)>,
    switch: Option<PathBuf>,
}

impl Source {
    /// Finds what the arguments say; without any, everything of this namespace and host that
    /// enforces.
    ///
    /// # Errors
    /// There is nothing.
    pub fn find(place: &Place) -> Result<Self> {
        let mut source = Self {
            place: place.clone(),
            kernel: None,
            switch: place.switch.clone(),
        };
        if let Some(socket) = &source.switch {
            switch(socket)?;
            return Ok(source);
        }
        // The switch is one of the host's, and of no other namespace.
        if place.netns.is_none() {
            let socket = Path::new(config::SOCKET);
            let runs = switch(socket).is_ok();
            source.switch = runs.then(|| socket.to_owned());
        }
        let found = place.find();
        source.kernel = match found {
            Err(_) if source.switch.is_some() => None,
            found => Some(found?),
        };
        Ok(source)
    }

    /// Its name in documents: that of the network namespace, or `switch`.
    pub fn name(&self) -> &str {
        self.kernel
            .as_ref()
            .map_or("switch", |(netns, _)| netns.name())
    }

    /// What is pinned, where the kernel enforces.
    pub fn pins(&self) -> Option<&Pins> {
        self.kernel.as_ref().map(|(_, pins)| pins)
    }

    /// The network namespace, where the kernel enforces.
    pub fn netns(&self) -> Option<&NetNs> {
        self.kernel.as_ref().map(|(netns, _)| netns)
    }

    /// Looks.
    ///
    /// # Errors
    /// What was found cannot be read any more.
    pub fn look(&self) -> Result<Snapshot> {
        let kernel = match &self.kernel {
            Some((netns, pins)) => Some(Snapshot::read(pins, &self.place.names(netns)?)?),
            None => None,
        };
        let switch = self.switch.as_deref().map(switch).transpose();
        match (kernel, switch) {
            (Some(kernel), Ok(Some(switch))) => Ok(both(kernel, snapshot(&switch)?)),
            // A switch that was ended meanwhile is none.
            (Some(kernel), _) => Ok(kernel),
            (None, switch) => snapshot(&switch?.context("nothing enforces")?),
        }
    }
}

/// What a switch tells.
///
/// # Errors
/// None answers there, it has no policy, or is of another build.
pub fn switch(socket: &Path) -> Result<Report> {
    let answer = control::ask(socket, Ask::Flows)?;
    let report: Option<Report> = serde_json::from_value(answer)
        .context("the switch is of another build than this command")?;
    let report = report.with_context(|| {
        format!(
            "the switch at {} has no policy; write policy = \"FILE\" into its [switch]",
            socket.display()
        )
    })?;
    ensure!(
        report.layout == ABI_VERSION,
        "the switch has layout {}, this command {ABI_VERSION}; use the same build",
        report.layout
    );
    Ok(report)
}

/// The ports of a switch, by its answers.
///
/// # Errors
/// It does not answer.
pub fn ports(ask: impl Fn(Ask) -> Result<Value>) -> Result<SwitchUse> {
    let [ports, drops] = [ask(Ask::Ports)?, ask(Ask::Drops)?];
    let [queues, show] = [ask(Ask::Queues)?, ask(Ask::Show)?];
    let rows = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let length = |value: &Value| value.as_array().map_or(0, |all| all.len() as u64);
    let drops = rows(&drops);
    let port = |port: &Value| {
        let count = |key: &str| port[key].as_u64().unwrap_or(0);
        let text = |key: &str| port[key].as_str().unwrap_or_default().to_owned();
        let own = drops.iter().find(|it| it["name"] == port["name"]);
        let own = own.and_then(|it| it["drops"].as_object());
        let places = own.into_iter().flatten();
        PortUse {
            name: text("name"),
            kind: text("kind"),
            is_up: port["up"] == true,
            received: (count("received_frames"), count("received_bytes")),
            delivered: (count("delivered_frames"), count("delivered_bytes")),
            drops: places
                .filter_map(|(place, count)| Some((place.clone(), count.as_u64()?)))
                .collect(),
        }
    };
    Ok(SwitchUse {
        ports: rows(&ports).iter().map(port).collect(),
        waited_for: length(&queues),
        stalled: length(&show["stalled"]),
        circles: length(&show["circles"]),
    })
}

/// The same as is read of the kernel's programs.
///
/// # Errors
/// The report has no policy.
pub fn snapshot(report: &Report) -> Result<Snapshot> {
    let policy = report.table.first().context("a report without a policy")?;
    let ports = report.ports.iter();
    let names = Names {
        interfaces: ports
            .clone()
            .map(|it| (it.ifindex, it.name.clone()))
            .collect(),
        tenants: ports
            .clone()
            .map(|it| (it.ifindex, it.tenant.clone()))
            .collect(),
        rules: report.rules.clone(),
    };
    let flows = report.keys.iter().zip(&report.flows);
    let record = |(key, flow)| FlowRecord::new(key, flow, &policy.slots, &names, report.at_ns);
    let mut flows: Vec<_> = flows.map(record).collect();
    flows.sort_by(FlowRecord::order);
    let interface = |port: &PortReport| InterfaceUse {
        ifindex: port.ifindex,
        interface: port.name.clone(),
        tenant: port.tenant.clone(),
        flows: port.flows,
        quota: port.quota,
    };
    Ok(Snapshot {
        at_ns: report.at_ns,
        flows,
        counters: report.counters.clone(),
        interfaces: ports.clone().map(interface).collect(),
        buckets: ports.flat_map(buckets).collect(),
        slots: report.flows_max,
        policy: Box::new(*policy),
    })
}

fn buckets(port: &PortReport) -> impl Iterator<Item = BucketUse> + '_ {
    let buckets = (0..).zip(&port.buckets);
    buckets.map(|(number, bucket)| BucketUse {
        interface: port.name.clone(),
        tenant: port.tenant.clone(),
        bucket: number,
        enforced: bucket.drops(),
        passed_bytes: bucket.passed_bytes,
        exceeded_bytes: bucket.exceeded_bytes,
        exceeded_packets: bucket.exceeded_packets,
    })
}

/// Indices of ports are the switch's own: they begin where those of no interface are.
const PORTS: u32 = 1 << 31;

/// One view of both. Times are those of the first.
fn both(mut kernel: Snapshot, switch: Snapshot) -> Snapshot {
    let own = |ifindex| PORTS | ifindex;
    kernel
        .flows
        .extend(switch.flows.into_iter().map(|flow| FlowRecord {
            ifindex: own(flow.ifindex),
            ..flow
        }));
    kernel.flows.sort_by(FlowRecord::order);
    let ports = switch.interfaces.into_iter();
    kernel.interfaces.extend(ports.map(|port| InterfaceUse {
        ifindex: own(port.ifindex),
        ..port
    }));
    for (name, count) in switch.counters {
        *kernel.counters.entry(name).or_default() += count;
    }
    kernel.buckets.extend(switch.buckets);
    kernel.slots = kernel.slots.saturating_add(switch.slots);
    kernel
}

#[cfg(test)]
mod tests {
    use sluicegate_core::abi::{Bucket, Flow, FlowKey, MODE_ONE_SIDED, PolicyTable};

    use super::*;

    fn report() -> Report {
        let key = FlowKey {
            ifindex: 2,
            local_port: 7_u16.to_be(),
            ..FlowKey::default()
        };
        let flow = Flow {
            mode: MODE_ONE_SIDED,
            bytes_acked: 5_000,
            seen_ns: 1_000_000,
            ..Flow::default()
        };
        Report {
            layout: ABI_VERSION,
            at_ns: 4_000_000,
            policy: PathBuf::from("policy.toml"),
            fingerprint: String::new(),
            rules: vec!["bulk".to_owned()],
            table: vec![PolicyTable::default()],
            keys: vec![key],
            flows: vec![flow],
            counters: [("packets".to_owned(), 9)].into(),
            ports: vec![PortReport {
                ifindex: 2,
                name: "vm1".to_owned(),
                tenant: "red".to_owned(),
                flows: 1,
                quota: 8,
                buckets: vec![Bucket::default()],
            }],
            flows_max: 64,
        }
    }

    #[test]
    fn a_switchs_flows_are_read_like_the_kernels() {
        let seen = snapshot(&report()).expect("a report");
        let [flow] = &seen.flows[..] else {
            panic!("one flow")
        };
        assert_eq!(
            (flow.interface.as_str(), flow.tenant.as_str()),
            ("vm1", "red")
        );
        assert_eq!(
            (flow.mode, flow.acked_bytes, flow.idle_ms),
            ("one-sided", 5_000, 3)
        );
        assert_eq!(flow.rule_name.as_deref(), Some("bulk"));
        assert_eq!((seen.interfaces[0].quota, seen.buckets.len()), (8, 1));
    }

    #[test]
    fn both_are_seen_at_once_and_told_apart() {
        let one = || snapshot(&report()).expect("a report");
        let seen = both(one(), one());
        let indices: Vec<_> = seen.flows.iter().map(|flow| flow.ifindex).collect();
        assert_eq!(indices, [2, PORTS | 2]);
        assert_eq!((seen.counters["packets"], seen.slots), (18, 128));
    }
}
