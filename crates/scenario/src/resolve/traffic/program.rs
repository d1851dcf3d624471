//! `kind = "program"`: a parallel program, read from a file or generated, and where its ranks are.

mod training;

use std::{collections::HashMap, fs::File, io::BufReader, path::Path, sync::Arc, time::Duration};

use rand::seq::SliceRandom;
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;
use sluicegate_config::{
    bound::Bytes,
    problem::Complaint,
    table::{Item, Table},
};
use sluicegate_program::{
    Program, Weave, check,
    collectives::{Algorithm, Collective, Rounds},
    goal,
    nas::{self, Class, Kernel},
    phase_name,
};

use super::{Checks, Network, duration, pairs::side};
use crate::{
    bounds,
    experiment::{Tenant, TrafficKind},
};

/// Longest message that is sent before its receive is posted, unless a table says otherwise.
const EAGER_BYTES: u64 = 16_384;

/// Most operations of a generated program.
const OPERATIONS_MAX: u64 = bounds::OPERATIONS.most as u64;

/// What a program is made of.
const SOURCES: [&str; 4] = ["goal", "collective", "training", "nas"];

/// Keys of programs that are generated.
const GENERATED: [&str; 6] = [
    "size",
    "algorithm",
    "grid",
    "distance",
    "iterations",
    "compute",
];

const SOURCE_ADVICE: &str =
    "give one of goal = \"FILE\", collective = \"all-reduce\", training = { … } or nas = { … }";

/// What `collective` names.
#[derive(Clone, Copy, PartialEq)]
enum Pattern {
    Collective(Collective),
    Halo,
    Shift,
}

/// The program, and the pairs of tenants whose ranks exchange messages.
pub fn read(
    table: &Table<'_>,
    network: &Network,
    tenants: &[Tenant],
    checks: &Checks<'_>,
) -> (Option<TrafficKind>, Vec<(usize, usize)>) {
    for key in ["from", "to", "pairs", "stop"] {
        table.refuse(
            key,
            "does not belong to a program: its ranks stand `on` tenants",
        );
    }
    let on = side(table, "on", "*", network, tenants);
    refuse_twice(table, tenants);
    let asked = table.within("ranks", &bounds::RANKS);
    let eager_bytes = read_bytes(table, "eager").unwrap_or(EAGER_BYTES);
    let placement = table.get("placement");
    let datagram_bytes = read_transport(table, network);
    let handshakes = [("before", true), ("counted", false)];
    let begins_together = table.choice("handshakes", &handshakes).unwrap_or(true);
    let ranks = asked.map_or(on.len() as u64, |ranks| ranks as u64);
    // Nothing is generated for ranks that have no place.
    if table.get("goal").is_none() && !has_room(table, ranks, &on) {
        know(table, &SOURCES);
        know(table, &GENERATED);
        return (None, Vec::new());
    }
    let Some(program) = read_program(table, checks.directory, ranks, asked.is_some()) else {
        return (None, Vec::new());
    };
    if !has_room(table, program.ranks.len() as u64, &on) {
        return (None, Vec::new());
    }
    let goal = table.get("goal");
    if let Err(fault) = check::check(&program, eager_bytes) {
        let rank = fault
            .rank
            .map_or(String::new(), |rank| format!("rank {rank}: "));
        let file = (goal.as_ref().and_then(|item| item.text()))
            .map_or(String::new(), |file| format!("{file}: "));
        let item = goal.or_else(|| table.get("ranks"));
        let item = item.unwrap_or_else(|| table.item().clone());
        item.complain(format!("{file}{rank}{}", fault.reason), fault.advice);
        return (None, Vec::new());
    }
    if on.is_empty() {
        // There is nobody, which has been reported.
        return (None, Vec::new());
    }
    let placed = place(placement.as_ref(), on, program.ranks.len(), tenants, checks);
    let Some(placed) = placed else {
        return (None, Vec::new());
    };
    let pairs = program.pairs().into_iter();
    let pairs = pairs.map(|(low, high)| (placed[low as usize], placed[high as usize]));
    let pairs = pairs.collect();
    let kind = TrafficKind::Program {
        file: goal.and_then(|item| file_name(item.text()?)),
        program: Arc::new(program),
        tenants: placed,
        eager_bytes,
        datagram_bytes,
        begins_together,
    };
    (Some(kind), pairs)
}

/// The keys are known, though nothing is read from them.
fn know(table: &Table<'_>, keys: &[&'static str]) {
    keys.iter().for_each(|key| drop(table.get(key)));
}

/// Refuses entries of `on` all of whose tenants stand before them: a tenant has one rank.
fn refuse_twice(table: &Table<'_>, tenants: &[Tenant]) {
    let mut known = vec![false; tenants.len()];
    for item in table.get("on").iter().flat_map(|item| item.one_or_more()) {
        let pattern = item.text().unwrap_or_default();
        let named =
            (0..tenants.len()).filter(|at| super::super::matches(pattern, &tenants[*at].name));
        let named: Vec<usize> = named.collect();
        if !named.is_empty() && named.iter().all(|at| known[*at]) {
            let reason = format!("\"{pattern}\" is here already");
            item.complain(reason, "name each tenant once: it has one rank");
        }
        named.iter().for_each(|at| known[*at] = true);
    }
}

/// The name of a file without its directory, which differs from machine to machine.
fn file_name(path: &str) -> Option<String> {
    let name = Path::new(path).file_name()?;
    Some(name.to_string_lossy().into_owned())
}

/// Whether there are as many tenants as ranks.
fn has_room(table: &Table<'_>, ranks: u64, on: &[usize]) -> bool {
    if ranks <= on.len() as u64 || on.is_empty() {
        return true;
    }
    let item = table.get("ranks").unwrap_or_else(|| table.item().clone());
    let reason = format!(
        "the program has {ranks} ranks, and {} tenants to put them on",
        on.len()
    );
    let advice = "add hosts or `tenants_per_host`; a tenant has one rank of a program";
    item.complain(reason, advice);
    false
}

/// The payload of datagrams, if messages are such: only where none is lost.
fn read_transport(table: &Table<'_>, network: &Network) -> Option<u16> {
    let transports = [("tcp", false), ("datagrams", true)];
    if !table.choice("transport", &transports).unwrap_or(false) {
        return None;
    }
    let priority = table.within("priority", &bounds::PRIORITY).unwrap_or(0) as u8;
    let pfc = network.cee.as_ref().and_then(|cee| cee.pfc.as_ref());
    if pfc.is_none_or(|pfc| pfc.priorities >> priority & 1 == 0) {
        let item = table.get("transport")?;
        let reason = "messages as datagrams need a lossless network";
        item.complain(
            reason,
            "add [network.cee.pfc] with this traffic's `priority`",
        );
    }
    Some(super::datagrams::payload_bytes(
        network.mtu_bytes,
        network.ip_version,
    ))
}

fn read_bytes(table: &Table<'_>, key: &'static str) -> Option<u64> {
    let Bytes(bytes) = table.within(key, &bounds::PROGRAM_BYTES)?;
    Some(bytes)
}

/// `ranks` are as many as asked for, or as there are tenants.
fn read_program(table: &Table<'_>, directory: &Path, ranks: u64, asked: bool) -> Option<Program> {
    let (file, collective) = (table.get("goal"), table.get("collective"));
    let (step, kernel) = (table.get("training"), table.get("nas"));
    let given = [&file, &collective, &step, &kernel];
    let given = given.into_iter().flatten().count();
    if given != 1 {
        table
            .item()
            .complain("what does the program do?", SOURCE_ADVICE);
        know(table, &GENERATED);
        return None;
    }
    if let Some(item) = file {
        for key in GENERATED {
            table.refuse(key, "does not belong to a GOAL file");
        }
        let program = item.parse(|name| read_goal(&directory.join(name)))?;
        let own = program.ranks.len() as u64;
        if asked && ranks != own {
            item.complain(
                format!("the file has {own} ranks, and `ranks` is {ranks}"),
                "leave out `ranks`, or give another file",
            );
            return None;
        }
        return Some(program);
    }
    if let Some(item) = step {
        for key in ["size", "grid", "distance", "iterations", "compute"] {
            table.refuse(key, "does not belong to a training step");
        }
        let algorithm = read_algorithm(table).unwrap_or(Algorithm::Ring);
        let training = training::read(&item, algorithm)?;
        if asked && ranks != training.ranks() {
            let reason = format!(
                "{ranks} ranks, but data × tensor × pipeline is {}",
                training.ranks()
            );
            item.complain(reason, "leave out `ranks`");
            return None;
        }
        return found(&item, training.program());
    }
    if let Some(item) = kernel {
        for key in ["size", "grid", "distance", "algorithm"] {
            table.refuse(key, "does not belong to a skeleton of NAS");
        }
        return read_skeleton(table, &item, ranks as u32, asked);
    }
    let item = collective?;
    let pattern = read_pattern(&item)?;
    generate(table, &item, pattern, ranks as u32)
}

fn found(item: &Item<'_>, program: Result<Program, String>) -> Option<Program> {
    match program {
        Ok(program) => Some(program),
        Err(reason) => {
            item.complain(reason, "choose another `algorithm` or number of ranks");
            None
        }
    }
}

fn read_goal(path: &Path) -> Result<Program, Complaint> {
    let name = path.display();
    let advice = "GOAL is described in docs/programs.md";
    let file = File::open(path)
        .map_err(|error| Complaint::new(format!("{name} cannot be read: {error}"), advice))?;
    let program = goal::read(BufReader::with_capacity(1 << 20, file));
    program.map_err(|fault| Complaint::new(format!("{name}:{fault}"), advice))
}

fn read_pattern(item: &Item<'_>) -> Option<Pattern> {
    let collectives = Collective::ALL.map(|(name, one)| (name, Pattern::Collective(one)));
    let mut patterns = collectives.to_vec();
    patterns.push(("halo", Pattern::Halo));
    patterns.push(("shift", Pattern::Shift));
    item.choice(&patterns)
}

fn read_algorithm(table: &Table<'_>) -> Option<Algorithm> {
    table.choice("algorithm", &Algorithm::ALL)
}

fn generate(table: &Table<'_>, item: &Item<'_>, pattern: Pattern, ranks: u32) -> Option<Program> {
    let (iterations, compute) = read_iterations(table);
    let algorithm = read_algorithm(table);
    let size = read_bytes(table, "size");
    let rounds = match pattern {
        Pattern::Halo => {
            table.refuse("algorithm", "does not belong to a halo exchange");
            table.refuse("distance", "belongs to a shift");
            read_halo(table, ranks)?
        }
        Pattern::Shift => {
            table.refuse("algorithm", "does not belong to a shift");
            table.refuse("grid", "belongs to a halo exchange");
            let most = i64::from(ranks.max(2)) - 1;
            let distance = table
                .within("distance", &bounds::DISTANCE.up_to(most))
                .unwrap_or(1);
            Rounds::shift(ranks.max(1), distance as u32)
        }
        Pattern::Collective(collective) => {
            table.refuse("grid", "belongs to a halo exchange");
            table.refuse("distance", "belongs to a shift");
            let algorithm = algorithm.unwrap_or(collective.algorithms()[0]);
            let transfers = Rounds::transfers_max(collective, algorithm, ranks);
            check_size(item, transfers, iterations)?;
            match Rounds::of(collective, algorithm, ranks.max(1)) {
                Ok(rounds) => rounds,
                Err(reason) => {
                    item.complain(reason, "choose another `algorithm` or number of ranks");
                    return None;
                }
            }
        }
    };
    let is_barrier = pattern == Pattern::Collective(Collective::Barrier);
    if is_barrier {
        table.refuse("size", "does not belong to a barrier, which has no data");
    } else if size.is_none() {
        if table.get("size").is_none() {
            table.require("size", "bytes of each rank, for example size = \"1MB\"");
        }
        return None;
    }
    let transfers: usize = rounds.rounds.iter().map(Vec::len).sum();
    check_size(item, transfers as u64, iterations)?;
    let name = item.text().unwrap_or_default();
    let group: Vec<u32> = (0..ranks).collect();
    let bytes = size.unwrap_or(0);
    Some(repeat(
        name,
        iterations,
        (ranks, compute),
        |weave, phase| {
            weave.collective(&group, &rounds, bytes, phase);
        },
    ))
}

/// `nas = { … }`: iterations of a skeleton. Where no number of ranks is asked for, there are as
/// many of these as it runs on.
fn read_skeleton(table: &Table<'_>, item: &Item<'_>, ranks: u32, asked: bool) -> Option<Program> {
    let own = item.table()?;
    for key in ["kernel", "class"] {
        if own.get(key).is_none() {
            own.require(key, "for example nas = { kernel = \"cg\", class = \"c\" }");
        }
    }
    let kernel = own.choice("kernel", &Kernel::ALL);
    let class = own.choice("class", &Class::ALL);
    let scale = own.within("scale", &bounds::NAS_SCALE).unwrap_or(1.0);
    let name = format!("{}-skeleton", own.text("kernel").unwrap_or_default());
    own.close();
    let (iterations, compute) = read_iterations(table);
    let ranks = match asked {
        true => ranks,
        false => nas::most_ranks(kernel?, ranks),
    };
    if matches!(kernel?, Kernel::Ft | Kernel::Is) {
        // Everybody sends to everybody.
        check_size(item, u64::from(ranks).pow(2), iterations)?;
    }
    let rounds = match nas::iteration(kernel?, class?, ranks) {
        Ok(rounds) => rounds,
        Err(reason) => {
            item.complain(reason, "choose another number of `ranks`");
            return None;
        }
    };
    let messages: usize = rounds.iter().map(Vec::len).sum();
    check_size(item, messages as u64, iterations)?;
    Some(repeat(
        &name,
        iterations,
        (ranks, compute),
        |weave, phase| {
            nas::add(weave, &rounds, scale, phase);
        },
    ))
}

fn read_iterations(table: &Table<'_>) -> (u64, Duration) {
    let iterations = table.within("iterations", &bounds::ITERATIONS);
    let compute = duration(table, "compute").unwrap_or(Duration::ZERO);
    (iterations.unwrap_or(1) as u64, compute)
}

/// Refuses more operations than a program may have; of each message there are two.
fn check_size(item: &Item<'_>, messages: u64, iterations: u64) -> Option<()> {
    let operations = iterations.saturating_mul(2 * messages);
    if operations > OPERATIONS_MAX {
        let reason = format!("{operations} operations, above {OPERATIONS_MAX}");
        item.complain(reason, "use fewer `iterations` or ranks");
        return None;
    }
    Some(())
}

/// The same work of all ranks over and over, each time after a computation.
fn repeat(
    name: &str,
    iterations: u64,
    (ranks, compute): (u32, Duration),
    work: impl Fn(&mut Weave, u16),
) -> Program {
    let mut weave = Weave::new(ranks);
    for number in 1..=iterations {
        let phase = weave.phase(&phase_name(name, number, iterations));
        if !compute.is_zero() {
            let time_ns = compute.as_nanos() as u64;
            let rest = weave.phase("compute");
            (0..ranks).for_each(|rank| weave.compute(rank, time_ns, rest));
        }
        work(&mut weave, phase);
    }
    weave.finish()
}

fn read_halo(table: &Table<'_>, ranks: u32) -> Option<Rounds> {
    let Some(item) = table.get("grid") else {
        table.require(
            "grid",
            "for example grid = [4, 4], whose product is the number of ranks",
        );
        return None;
    };
    let lengths: Option<Vec<u32>> = (item.list()?.iter())
        .map(|length| Some(length.within(&bounds::RANKS)? as u32))
        .collect();
    let lengths = lengths?;
    let product: u64 = lengths.iter().fold(1, |product: u64, length| {
        product.saturating_mul(u64::from(*length))
    });
    if lengths.is_empty() || product != u64::from(ranks) {
        let reason = format!("has {product} places for {ranks} ranks");
        item.complain(reason, "make the product the number of ranks");
        return None;
    }
    Some(Rounds::halo(&lengths))
}

/// Tenants by rank.
fn place(
    item: Option<&Item<'_>>,
    mut on: Vec<usize>,
    ranks: usize,
    tenants: &[Tenant],
    checks: &Checks<'_>,
) -> Option<Vec<usize>> {
    let text = item.map_or(Some("linear"), |item| item.text())?;
    match text {
        "linear" => {}
        "random" => on.shuffle(&mut Pcg64Mcg::seed_from_u64(checks.seed)),
        file => {
            let path = checks.directory.join(file);
            on = item?.parse(|_| read_placement(&path, &on, ranks, tenants))?;
        }
    }
    on.truncate(ranks);
    Some(on)
}

/// A file with the name of a tenant in each line, by rank.
fn read_placement(
    path: &Path,
    on: &[usize],
    ranks: usize,
    tenants: &[Tenant],
) -> Result<Vec<usize>, Complaint> {
    let advice = "use \"linear\", \"random\" or a file with the tenant of each rank, one a line";
    let name = path.display();
    let complaint = |reason: String| Complaint::new(reason, advice);
    let content = std::fs::read_to_string(path)
        .map_err(|error| complaint(format!("{name} cannot be read: {error}")))?;
    let numbers = on.iter().map(|at| (tenants[*at].name.as_str(), *at));
    let numbers: HashMap<&str, usize> = numbers.collect();
    let mut is_taken = vec![false; tenants.len()];
    let mut placed = Vec::new();
    for (line, tenant) in (1..).zip(content.lines()) {
        let tenant = tenant.trim();
        if tenant.is_empty() || tenant.starts_with('#') {
            continue;
        }
        let known = *numbers.get(tenant).ok_or_else(|| {
            complaint(format!(
                "{name}:{line}: \"{tenant}\" is no tenant for ranks"
            ))
        })?;
        if std::mem::replace(&mut is_taken[known], true) {
            let reason = format!("{name}:{line}: \"{tenant}\" has a rank already");
            return Err(complaint(reason));
        }
        placed.push(known);
    }
    if placed.len() < ranks {
        let reason = format!("{name} places {} of {ranks} ranks", placed.len());
        return Err(complaint(reason));
    }
    Ok(placed)
}
