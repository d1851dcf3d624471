//! The same congestion control natively and in the kernel: identical bytes for the same vectors.
//!
//! Needs root and a kernel that lets static subprograms run under a spin lock.

#![allow(unsafe_code)]

use libbpf_rs::{Object, ProgramInput};
use sluicegate_agent::{include_object, object};
use sluicegate_core::{
    abi::Params,
    cc::{Ack, Algorithm, Cc},
};

const VECTORS: u32 = 4000;
const ETHERNET_BYTES: usize = 14;
/// `struct cc_vector` of bpf/cc_vectors.bpf.c.
const VECTOR_BYTES: usize = 192;
const CC_AT: usize = 16 + size_of::<Params>();
const CC_END: usize = CC_AT + size_of::<Cc>();

#[derive(Clone, Copy, Debug)]
enum Event {
    Init,
    Ack,
    Loss,
    Timeout,
    Idle,
}

#[derive(Clone, Copy, Debug)]
struct Vector {
    event: Event,
    algorithm: Algorithm,
    mss: u32,
    params: Params,
    cc: Cc,
    ack: Ack,
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u32 {
        (self.next() % end) as u32
    }

    /// Any magnitude, the edges often.
    fn size(&mut self) -> u32 {
        match self.below(8) {
            0 => 0,
            1 => u32::MAX,
            _ => (self.next() >> (32 + self.below(32))) as u32,
        }
    }

    fn params(&mut self) -> Params {
        Params {
            floor_mss: self.below(4) as u8,
            init_segments: self.next() as u8,
            g_shift: self.next() as u8,
            flags: self.below(8) as u8,
            beta_q10: self.size(),
            window_cap: self.size(),
            fixed_bytes: self.size(),
            k_bytes: self.size(),
            k_delay_ns: self.size(),
            vegas_alpha: self.below(8) as u8,
            vegas_beta: self.below(16) as u8,
            k_segments: self.below(16) as u8,
            swift_target_ns: self.below(1_000_000),
            swift_range_ns: self.below(1_000_000),
            swift_ai_q10: self.next() as u16,
            swift_beta_q10: self.below(1100) as u16,
            swift_mdf_q10: self.below(1100) as u16,
            cubic_keep_q10: self.below(2) as u16 * self.below(1100) as u16,
            ..Params::default()
        }
    }

    /// An ACK that follows the last one most of the time, and anything at all at other times.
    fn ack(&mut self, last: &Ack, cwnd: u32) -> Ack {
        if self.below(8) == 0 {
            return Ack {
                now_ns: self.next(),
                acked: self.size(),
                marked: self.size(),
                rtt_ns: self.size(),
                min_rtt_ns: self.size(),
                snd_una: self.size(),
                snd_nxt: self.size(),
                flight: self.size(),
                window_used: self.below(2) as u8,
                in_recovery: self.below(2) as u8,
                on_path: self.below(2) as u8,
                pad: 0,
                path_acked: self.size(),
                path_marked: self.size(),
            };
        }
        let acked = 1 + self.below(u64::from(cwnd));
        let others = self.below(2) * self.below(u64::from(cwnd));
        let snd_una = last.snd_una.wrapping_add(acked);
        Ack {
            now_ns: last.now_ns.wrapping_add(self.next() % 10_000_000),
            acked,
            marked: if self.below(4) == 0 { acked } else { 0 },
            rtt_ns: 50_000 + self.below(2_000_000),
            min_rtt_ns: 50_000,
            snd_una,
            snd_nxt: snd_una.wrapping_add(cwnd),
            flight: cwnd,
            window_used: u8::from(self.below(8) != 0),
            in_recovery: u8::from(self.below(8) == 0),
            on_path: u8::from(self.below(8) != 0),
            pad: 0,
            path_acked: last.path_acked.wrapping_add(acked + others),
            path_marked: last
                .path_marked
                .wrapping_add(self.below(2) * self.below(u64::from(acked + others))),
        }
    }

    fn event(&mut self) -> Event {
        match self.below(20) {
            0 => Event::Init,
            1 => Event::Loss,
            2 => Event::Timeout,
            3 => Event::Idle,
            _ => Event::Ack,
        }
    }

    fn cc(&mut self) -> Cc {
        Cc {
            cwnd: self.size(),
            ssthresh: self.size(),
            mss: self.size(),
            round_end: self.size(),
            cut_end: self.size(),
            credit: self.size(),
            prior: self.size(),
            flags: self.size() as u16,
            algorithm: 0,
            pad: 0,
            word: [self.next(), self.next(), self.next(), self.next()],
        }
    }
}

/// State and parameters carry on from vector to vector; now and then both are drawn anew, and the
/// state is then any bytes at all.
fn vectors(algorithm: Algorithm) -> impl Iterator<Item = Vector> {
    let mut random = Random(0x51u64 << 8 | u64::from(algorithm.number()));
    let mut vector = Vector {
        event: Event::Init,
        algorithm,
        mss: 1448,
        params: random.params(),
        cc: Cc::default(),
        ack: Ack::default(),
    };
    (0..VECTORS).map(move |index| {
        if index % 200 == 0 {
            vector.params = random.params();
            vector.mss = random.size();
            vector.cc = Cc::new(&vector.params, algorithm, vector.mss);
        }
        if random.below(16) == 0 {
            vector.cc = random.cc();
        }
        vector.event = random.event();
        vector.ack = random.ack(&vector.ack, vector.cc.cwnd.max(1));
        let given = vector;
        natively(&mut vector);
        given
    })
}

fn natively(vector: &mut Vector) {
    let Vector {
        event,
        algorithm,
        mss,
        params,
        cc,
        ack,
    } = vector;
    match event {
        Event::Init => *cc = Cc::new(params, *algorithm, *mss),
        Event::Ack => cc.on_ack(params, *algorithm, ack),
        Event::Loss => cc.on_loss(params, *algorithm, ack),
        Event::Timeout => cc.on_timeout(params, *algorithm, ack),
        Event::Idle => cc.on_idle(params),
    }
}

/// Any of the mirrors, as the kernel would see it.
fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: Params, Cc and Ack are repr(C) without padding, so every byte is initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

fn packet(vector: &Vector) -> Vec<u8> {
    let mut bytes = vec![0; ETHERNET_BYTES];
    let head = [vector.event as u32, vector.algorithm.into(), vector.mss, 0];
    for word in head {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(bytes_of(&vector.params));
    bytes.extend(bytes_of(&vector.cc));
    bytes.extend(bytes_of(&vector.ack));
    assert_eq!(bytes.len(), ETHERNET_BYTES + VECTOR_BYTES);
    bytes
}

/// The kernel's result for a vector: the bytes of its `struct sg_cc`.
fn in_kernel(programs: &Object, vector: &Vector) -> Vec<u8> {
    let program = object::program(programs, "cc_vectors").unwrap();
    let input = packet(vector);
    let mut output = vec![0; input.len()];
    let run = program
        .test_run(ProgramInput {
            data_in: Some(&input),
            data_out: Some(&mut output),
            ..ProgramInput::default()
        })
        .expect("running the program: are you root?");
    assert_eq!(run.return_value, 0);
    output[ETHERNET_BYTES + CC_AT..ETHERNET_BYTES + CC_END].to_vec()
}

fn agree(programs: &Object, algorithm: Algorithm) {
    let mut changed = 0;
    for (index, given) in vectors(algorithm).enumerate() {
        let mut native = given;
        natively(&mut native);
        let kernel = in_kernel(programs, &given);
        assert_eq!(
            kernel,
            bytes_of(&native.cc),
            "{algorithm}, vector {index}: {given:?}"
        );
        changed += u32::from(native.cc != given.cc);
    }
    assert!(
        changed > VECTORS / 10,
        "{algorithm}: only {changed} vectors did anything"
    );
}

#[test]
fn every_algorithm_is_the_same_in_the_kernel() {
    let opened = object::open("cc_vectors", include_object!("cc_vectors")).unwrap();
    let programs = object::load(opened, "cc_vectors").unwrap();
    for algorithm in Algorithm::ALL {
        agree(&programs, algorithm);
    }
}
