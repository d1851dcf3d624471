//! What each path through the programs costs, by `BPF_PROG_TEST_RUN`, beside an empty program.

use anyhow::{Context, Result, ensure};
use libbpf_rs::{Object, ProgramInput};
use sluicegate_agent::{Instance, Options, include_object, interfaces, object};

use crate::{
    frames::{
        ACK, HANDSHAKE_OPTIONS, PEER_OPTION, REMOTE_ISN, SYN, Segment, TENANT_ISN, arp,
        feedback_option,
    },
    shared::policy,
};

/// Runs of each path; the median of their durations counts.
const RUNS: u32 = 4000;

/// Bytes of `struct __sk_buff`, and where `ifindex` is in it (uapi/linux/bpf.h).
const CONTEXT_BYTES: usize = 192;
const CONTEXT_IFINDEX: usize = 40;

const MSS: u32 = 1448;

/// One path: its name and the median time of a run in ns.
pub struct PathCost {
    /// Direction and kind of packet.
    pub name: &'static str,
    /// Median of the runs, in ns, the kernel's own measuring included.
    pub median_ns: u32,
}

/// Runs every path on the interface `tenant` of the calling thread's network namespace.
pub fn costs() -> Result<Vec<PathCost>> {
    let empty = object::load(object::open("empty", include_object!("doctor"))?, "doctor")?;
    let instance = Instance::load(&policy::policy()?, &Options::default())?;
    let bench = Bench {
        instance: &instance,
        object: instance.object(),
        ifindex: interfaces::find("tenant")?.index,
    };
    let mut costs = vec![
        Bench {
            object: &empty,
            ..bench
        }
        .cost("empty program", "probe_empty", |_| arp())?,
    ];
    costs.push(bench.cost("not TCP", "from_tenant", |_| arp())?);
    costs.push(bench.cost("SYN, our option added", "from_tenant", |run| {
        syn(TENANT_ISN + run, true).frame()
    })?);
    costs.extend(bench.syns_to_tenant()?);
    bench.handshake()?;
    costs.extend(bench.sending()?);
    costs.extend(bench.receiving()?);
    costs.extend(bench.seldom()?);
    Ok(costs)
}

fn syn(seq: u32, from_tenant: bool) -> Segment<'static> {
    Segment {
        from_tenant,
        seq,
        ack: 0,
        flags: SYN,
        ecn: 0,
        options: &HANDSHAKE_OPTIONS,
        payload: 0,
    }
}

#[derive(Clone, Copy)]
struct Bench<'a> {
    instance: &'a Instance,
    object: &'a Object,
    ifindex: u32,
}

impl Bench<'_> {
    /// A SYN as it is, and one whose MSS the rule lowers.
    fn syns_to_tenant(&self) -> Result<[PathCost; 2]> {
        let mut lowering = policy::policy()?;
        lowering.rules[0].mss_bytes = Some(1400);
        let lowering = Instance::load(&lowering, &Options::default())?;
        let other = Bench {
            instance: &lowering,
            object: lowering.object(),
            ifindex: self.ifindex,
        };
        let frame = |run: u32| syn(REMOTE_ISN + run, false).frame();
        Ok([
            self.cost("to tenant: SYN", "to_tenant", frame)?,
            other.cost("to tenant: SYN, MSS lowered", "to_tenant", frame)?,
        ])
    }

    /// Opens the connection, both ends enforcing.
    fn handshake(&self) -> Result<()> {
        self.run("from_tenant", &syn(TENANT_ISN, true).frame())?;
        let options = [HANDSHAKE_OPTIONS, PEER_OPTION].concat();
        let answer = Segment {
            ack: TENANT_ISN + 1,
            flags: SYN | ACK,
            options: &options,
            ..syn(REMOTE_ISN, false)
        };
        self.run("to_tenant", &answer.frame())?;
        ensure!(
            self.instance.raw_flows()?.len() == 1,
            "the handshake made no flow: what follows would measure the wrong path"
        );
        Ok(())
    }

    /// The tenant sends data and takes ACKs: each run one segment further.
    fn sending(&self) -> Result<Vec<PathCost>> {
        let data = |run: u32| Segment {
            from_tenant: true,
            seq: TENANT_ISN + 1 + run * MSS,
            ack: REMOTE_ISN + 1,
            flags: ACK,
            ecn: 0,
            options: &[],
            payload: MSS as usize,
        };
        let acked = |run: u32, options: &[u8]| {
            Segment {
                from_tenant: false,
                seq: REMOTE_ISN + 1,
                ack: TENANT_ISN + 1 + run * MSS,
                flags: ACK,
                ecn: 2,
                options,
                payload: 0,
            }
            .frame()
        };
        // Data and ACK take turns, so that policing has nothing to object to.
        let mut times = [Vec::new(), Vec::new()];
        for run in 0..RUNS {
            times[0].push(self.run("from_tenant", &data(run).frame())?);
            let feedback = feedback_option(1 + (run + 1) * MSS, run / 10 * MSS);
            times[1].push(self.run("to_tenant", &acked(run + 1, &feedback))?);
        }
        let [out, back] = times;
        let again = self.cost("to tenant: duplicate ACK", "to_tenant", |_| {
            acked(RUNS, &[])
        })?;
        Ok(vec![
            PathCost {
                name: "from tenant: data",
                median_ns: median(out),
            },
            PathCost {
                name: "to tenant: ACK with feedback",
                median_ns: median(back),
            },
            again,
        ])
    }

    /// Data comes and the tenant acknowledges it.
    fn receiving(&self) -> Result<Vec<PathCost>> {
        let sent = TENANT_ISN + 1 + RUNS * MSS;
        let data = |run: u32| {
            Segment {
                from_tenant: false,
                seq: REMOTE_ISN + 1 + run * MSS,
                ack: sent,
                flags: ACK,
                ecn: if run % 10 == 0 { 3 } else { 2 },
                options: &[],
                payload: MSS as usize,
            }
            .frame()
        };
        let acking = |run: u32| {
            Segment {
                from_tenant: true,
                seq: sent,
                ack: REMOTE_ISN + 1 + run * MSS,
                flags: ACK,
                ecn: 0,
                options: &[],
                payload: 0,
            }
            .frame()
        };
        Ok(vec![
            self.cost("to tenant: data", "to_tenant", data)?,
            self.cost("from tenant: ACK, feedback added", "from_tenant", acking)?,
        ])
    }

    /// What a flow meets now and then. Comes after the others: the tenant has sent `RUNS` segments,
    /// all acknowledged, and received as many.
    fn seldom(&self) -> Result<Vec<PathCost>> {
        let (sent, received) = (TENANT_ISN + 1 + RUNS * MSS, REMOTE_ISN + 1 + RUNS * MSS);
        let data = |seq: u32| {
            Segment {
                from_tenant: true,
                seq,
                ack: received,
                flags: ACK,
                ecn: 0,
                options: &[],
                payload: MSS as usize,
            }
            .frame()
        };
        let back = |flags: u8, options: &[u8]| {
            Segment {
                from_tenant: false,
                seq: received,
                ack: sent,
                flags,
                ecn: 2,
                options,
                payload: 0,
            }
            .frame()
        };
        let sack = |run: u32| {
            let (left, right) = (sent + MSS, sent + 2 * MSS + run);
            let mut options = vec![1, 1, 5, 10];
            options.extend([left.to_be_bytes(), right.to_be_bytes()].concat());
            back(ACK, &options)
        };
        let fack = |run: u32| {
            let counts = feedback_option(1 + RUNS * MSS + run, RUNS / 10 * MSS);
            let mut mark = PEER_OPTION;
            mark[5] = 1;
            back(ACK, &[counts, mark].concat())
        };
        let answer = |_| {
            let options = [HANDSHAKE_OPTIONS, PEER_OPTION].concat();
            Segment {
                ack: TENANT_ISN + 1,
                flags: SYN | ACK,
                options: &options,
                ..syn(REMOTE_ISN, false)
            }
            .frame()
        };
        Ok(vec![
            self.cost("from tenant: retransmission", "from_tenant", |_| data(sent))?,
            self.cost("to tenant: ACK with SACK", "to_tenant", sack)?,
            self.cost("to tenant: FACK, consumed", "to_tenant", fack)?,
            self.cost("from tenant: data, policed", "from_tenant", |_| {
                data(sent + (64 << 20))
            })?,
            self.cost("to tenant: SYN/ACK, repeated", "to_tenant", answer)?,
        ])
    }

    fn cost(
        &self,
        name: &'static str,
        program: &str,
        frame: impl Fn(u32) -> Vec<u8>,
    ) -> Result<PathCost> {
        let times: Result<Vec<u32>> = (0..RUNS)
            .map(|run| self.run(program, &frame(run)))
            .collect();
        Ok(PathCost {
            name,
            median_ns: median(times?),
        })
    }

    /// One run on one frame; its duration in ns.
    fn run(&self, program: &str, frame: &[u8]) -> Result<u32> {
        let mut context = [0u8; CONTEXT_BYTES];
        context[CONTEXT_IFINDEX..][..4].copy_from_slice(&self.ifindex.to_ne_bytes());
        let mut edited = vec![0; frame.len() + 64];
        let output = object::program(self.object, program)?
            .test_run(ProgramInput {
                context_in: Some(&mut context),
                data_in: Some(frame),
                data_out: Some(&mut edited),
                repeat: 1,
                ..ProgramInput::default()
            })
            .with_context(|| format!("running {program} on a frame"))?;
        Ok(u32::try_from(output.duration.as_nanos())?)
    }
}

fn median(mut times: Vec<u32>) -> u32 {
    times.sort_unstable();
    times[times.len() / 2]
}
