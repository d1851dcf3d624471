//! One step of the training of a large model: pipeline, tensor and data parallelism.
//!
//! - Ranks: tensor parallel ones are neighbours, then come data and pipeline parallel ones
//!   (Megatron-LM).
//! - The pipeline runs one forward, one backward (1F1B; Narayanan et al., "Efficient Large-Scale
//!   Language Model Training on GPU Clusters", SC 2021). An activation of a micro-batch has
//!   sequence × hidden values; each of the tensor parallel ranks sends its part to its peer in the
//!   next stage.
//! - Each layer has two all-reduces of such an activation among tensor parallel ranks in the
//!   forward and two in the backward pass (Shoeybi et al. 2019).
//! - At the end the gradients are all-reduced among data parallel ranks, not overlapped with the
//!   backward pass.
//! - Computation: 2 FLOP for each parameter and token forward, 4 backward.

use crate::{
    Program, Weave,
    collectives::{Algorithm, Collective, Rounds},
};

/// A model and how it is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// Parameters of the model.
    pub parameters: f64,
    /// Layers; a multiple of `pipeline`.
    pub layers: u32,
    /// Values of a token between layers.
    pub hidden: u64,
    /// Tokens of a micro-batch.
    pub tokens: u64,
    /// Bytes of a value, of activations and of gradients.
    pub value_bytes: u64,
    /// Degree of data parallelism.
    pub data: u32,
    /// Degree of tensor parallelism.
    pub tensor: u32,
    /// Stages of the pipeline.
    pub pipeline: u32,
    /// Micro-batches of a step, of each data parallel replica.
    pub micro_batches: u32,
    /// What a rank computes per second.
    pub flops: f64,
    /// Bits per second of a network among tensor parallel ranks that is not simulated: their
    /// all-reduces take 2 (n − 1) / n of the bytes at this rate. `None` = they are messages.
    pub tensor_rate_bps: Option<f64>,
    /// How gradients are reduced.
    pub gradients: Algorithm,
    /// How activations are reduced, where these are messages.
    pub activations: Algorithm,
    /// All bytes and times are multiplied by this.
    pub scale: f64,
}

/// One half of the work on a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pass {
    Forward,
    Backward,
}

impl Training {
    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        u64::from(self.data) * u64::from(self.tensor) * u64::from(self.pipeline)
    }

    /// Bytes of the gradients of a rank.
    pub fn gradient_bytes(&self) -> u64 {
        let shards = f64::from(self.tensor) * f64::from(self.pipeline);
        (self.parameters / shards * self.value_bytes as f64 * self.scale) as u64
    }

    /// Bytes of an activation of a micro-batch.
    pub fn activation_bytes(&self) -> u64 {
        let bytes = self.tokens as f64 * self.hidden as f64 * self.value_bytes as f64;
        (bytes * self.scale) as u64
    }

    /// Time of a rank's forward pass of a micro-batch in ns, without messages.
    fn forward_ns(&self) -> f64 {
        let shards = f64::from(self.tensor) * f64::from(self.pipeline);
        2.0 * self.parameters * self.tokens as f64 / shards / self.flops * 1e9 * self.scale
    }

    /// How many operations [`Training::program`] makes at most, found without making them.
    pub fn operations_max(&self) -> u64 {
        let [data, tensor, stages] = [self.data, self.tensor, self.pipeline].map(u64::from);
        let reduce = |algorithm, members| {
            2 * Rounds::transfers_max(Collective::AllReduce, algorithm, members)
        };
        // A rank computes and receives and sends an activation.
        let pass = match self.tensor == 1 || self.tensor_rate_bps.is_some() {
            true => 3 * tensor,
            false => {
                let layers = u64::from(self.layers / self.pipeline.max(1));
                let each = tensor + reduce(self.activations, self.tensor);
                (2 * layers).saturating_mul(each) + 2 * tensor
            }
        };
        let passes = 2 * data * stages * u64::from(self.micro_batches);
        let gradients = (stages * tensor).saturating_mul(reduce(self.gradients, self.data));
        passes.saturating_mul(pass).saturating_add(gradients)
    }

    /// The step as a program.
    ///
    /// # Errors
    /// Degrees that an algorithm cannot serve.
    pub fn program(&self) -> Result<Program, String> {
        let reduce = |algorithm, members| Rounds::of(Collective::AllReduce, algorithm, members);
        let gradients = reduce(self.gradients, self.data)?;
        let activations = reduce(self.activations, self.tensor)?;
        let mut weave = Weave::new(self.ranks() as u32);
        let work = weave.phase("pipeline");
        let last = weave.phase("gradients");
        for data in 0..self.data {
            self.pipeline(&mut weave, data, &activations, work);
        }
        for stage in 0..self.pipeline {
            for tensor in 0..self.tensor {
                let group: Vec<u32> = (0..self.data)
                    .map(|data| self.rank(tensor, data, stage))
                    .collect();
                weave.collective(&group, &gradients, self.gradient_bytes(), last);
            }
        }
        Ok(weave.finish())
    }

    fn rank(&self, tensor: u32, data: u32, stage: u32) -> u32 {
        tensor + self.tensor * (data + self.data * stage)
    }

    /// All stages of a replica. Tags: of each micro-batch and pass one, between two stages.
    fn pipeline(&self, weave: &mut Weave, data: u32, reduce: &Rounds, phase: u16) {
        let tags: Vec<u32> = (0..2 * self.micro_batches * self.pipeline)
            .map(|_| weave.fresh_tag())
            .collect();
        for stage in 0..self.pipeline {
            for (pass, batch) in one_forward_one_backward(self.pipeline, stage, self.micro_batches)
            {
                let at = Step {
                    data,
                    stage,
                    pass,
                    tags: &tags,
                    batch,
                };
                self.pass(weave, &at, reduce, phase);
            }
        }
    }

    fn pass(&self, weave: &mut Weave, at: &Step<'_>, reduce: &Rounds, phase: u16) {
        let last = self.pipeline - 1;
        let (before, after) = match at.pass {
            Pass::Forward => (
                at.stage.checked_sub(1),
                (at.stage < last).then_some(at.stage + 1),
            ),
            Pass::Backward => (
                (at.stage < last).then_some(at.stage + 1),
                at.stage.checked_sub(1),
            ),
        };
        let part = self.activation_bytes() / u64::from(self.tensor);
        let group: Vec<u32> = (0..self.tensor)
            .map(|tensor| self.rank(tensor, at.data, at.stage))
            .collect();
        for (tensor, &rank) in (0..).zip(&group) {
            if let Some(before) = before {
                let from = self.rank(tensor, at.data, before);
                weave.receive(rank, from, part, at.tag(before, self.micro_batches), phase);
            }
        }
        self.layers(weave, at.pass, &group, reduce, phase);
        for (tensor, &rank) in (0..).zip(&group) {
            if let Some(after) = after {
                let to = self.rank(tensor, at.data, after);
                weave.send(rank, to, part, at.tag(at.stage, self.micro_batches), phase);
            }
        }
    }

    /// The layers of a stage.
    fn layers(&self, weave: &mut Weave, pass: Pass, group: &[u32], reduce: &Rounds, phase: u16) {
        let factor = match pass {
            Pass::Forward => 1.0,
            Pass::Backward => 2.0,
        };
        let time_ns = self.forward_ns() * factor;
        let layers = self.layers / self.pipeline;
        let bytes = self.activation_bytes();
        if self.tensor == 1 || self.tensor_rate_bps.is_some() {
            let members = f64::from(self.tensor);
            let sent = 2.0 * (members - 1.0) / members * bytes as f64 * 8.0;
            let rate = self.tensor_rate_bps.unwrap_or(f64::INFINITY);
            let all_ns = 2.0 * f64::from(layers) * sent / rate * 1e9;
            group
                .iter()
                .for_each(|&rank| weave.compute(rank, (time_ns + all_ns) as u64, phase));
            return;
        }
        for _ in 0..2 * layers {
            let part_ns = time_ns / f64::from(2 * layers);
            group
                .iter()
                .for_each(|&rank| weave.compute(rank, part_ns as u64, phase));
            weave.collective(group, reduce, bytes, phase);
        }
    }
}

/// A pass of a micro-batch at a stage of a replica.
struct Step<'a> {
    data: u32,
    stage: u32,
    pass: Pass,
    batch: u32,
    tags: &'a [u32],
}

impl Step<'_> {
    /// Of what the stage `from` sends in this pass.
    fn tag(&self, from: u32, batches: u32) -> u32 {
        let pass = match self.pass {
            Pass::Forward => 0,
            Pass::Backward => 1,
        };
        self.tags[(2 * (from * batches + self.batch) + pass) as usize]
    }
}

/// The passes of a stage in their order, with the numbers of micro-batches.
fn one_forward_one_backward(stages: u32, stage: u32, batches: u32) -> Vec<(Pass, u32)> {
    let ahead = (stages - stage - 1).min(batches);
    let warm = (0..ahead).map(|batch| (Pass::Forward, batch));
    let steady = (ahead..batches)
        .flat_map(|batch| [(Pass::Forward, batch), (Pass::Backward, batch - ahead)]);
    let cool = (batches - ahead..batches).map(|batch| (Pass::Backward, batch));
    warm.chain(steady).chain(cool).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, check::check};

    fn small() -> Training {
        Training {
            parameters: 1e6,
            layers: 4,
            hidden: 64,
            tokens: 128,
            value_bytes: 2,
            data: 2,
            tensor: 2,
            pipeline: 2,
            micro_batches: 3,
            flops: 1e12,
            tensor_rate_bps: None,
            gradients: Algorithm::Ring,
            activations: Algorithm::Ring,
            scale: 1.0,
        }
    }

    #[test]
    fn a_step_has_no_more_operations_than_is_said_before() {
        for (data, tensor, pipeline, rate) in [
            (2, 2, 2, None),
            (1, 1, 1, None),
            (3, 1, 4, None),
            (2, 4, 2, Some(1e9)),
            (4, 4, 1, None),
        ] {
            let training = Training {
                data,
                tensor,
                pipeline,
                tensor_rate_bps: rate,
                ..small()
            };
            let made = training.program().expect("a program").operations();
            let most = training.operations_max();
            assert!((made..=3 * made).contains(&most), "{made}, at most {most}");
        }
        let many = Training {
            micro_batches: 100_000,
            layers: 10_000,
            data: 65_536,
            tensor: 65_536,
            ..small()
        };
        assert!(many.operations_max() > 1 << 40);
    }

    #[test]
    fn a_step_ends_whatever_waits() {
        for (data, tensor, pipeline, micro_batches) in [
            (2, 2, 2, 3),
            (1, 1, 1, 1),
            (3, 1, 4, 2),
            (1, 4, 1, 2),
            (2, 2, 4, 8),
        ] {
            let training = Training {
                data,
                tensor,
                pipeline,
                micro_batches,
                ..small()
            };
            let program = training.program().unwrap();
            assert_eq!(program.ranks.len() as u64, training.ranks());
            assert_eq!(check(&program, 0), Ok(()), "{training:?}");
        }
    }

    #[test]
    fn bytes_are_those_of_the_formulas() {
        let training = small();
        let program = training.program().unwrap();
        let sent = |rank: usize, phase: u16| -> u64 {
            let operations = program.ranks[rank].operations().iter();
            let sends = operations.filter(|op| op.kind == Kind::Send && op.phase == phase);
            sends.map(|op| op.size).sum()
        };
        // 10^6 parameters on 4 shards, 2 bytes each; a ring of two sends all of them once.
        assert_eq!(sent(0, 1), 500_000);
        // Per micro-batch: 2 layers, each 4 all-reduces among two of 16 KiB, and half an
        // activation to the other stage.
        assert_eq!(sent(0, 0), 3 * (2 * 4 * 16_384 + 8_192));
        let computed: u64 = (program.ranks[0].operations().iter())
            .filter(|op| op.kind == Kind::Compute)
            .map(|op| op.size)
            .sum();
        // 6 × 10^6 parameters × 128 tokens × 3 on 4 shards of 10^12 FLOP/s.
        assert!((575_900..=576_000).contains(&computed), "{computed}");
    }

    #[test]
    fn a_pipeline_alternates() {
        use Pass::{Backward as B, Forward as F};
        assert_eq!(
            one_forward_one_backward(3, 1, 3),
            [(F, 0), (F, 1), (B, 0), (F, 2), (B, 1), (B, 2)]
                .into_iter()
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_network_of_its_own_takes_time_only() {
        let training = Training {
            tensor_rate_bps: Some(1e9),
            ..small()
        };
        let program = training.program().unwrap();
        let forward = program.ranks[0].operations()[0];
        // 64 us of computation; 4 all-reduces of 16 KiB among two, at 8 ns a byte.
        assert_eq!(forward.size, 64_000 + 4 * 16_384 * 8);
    }
}
