//! Warnings about classes of packets that neither a window nor a bucket limits.
//!
//! A window limits a governed flow; only buckets limit all other packets. Where rules enforce and a
//! class of packets has no bucket, a tenant that sends packets of this class takes the bandwidth
//! that governed flows give up. The figures are from docs/operators.md, which says how they were
//! measured.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate_config::problem::Complaint;

use crate::{
    bucket::{Bucket, Class},
    place::Where,
    rule::{Mode, Mptcp, Policy, Rule},
    warning::Weight,
};

/// Something that is not held, and what to do about it.
#[derive(Debug)]
pub(crate) struct WayOut {
    pub at: At,
    pub weight: Weight,
    pub complaint: Complaint,
    /// Lines that close it; empty where a value is to be changed instead.
    pub snippet: String,
}

/// The part of the file that is to blame, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Rule(usize),
    Bucket(usize),
}

/// The fate of one class of packets where one rule holds.
#[derive(Debug, Default)]
struct Fate {
    /// Buckets that have it somewhere, by position.
    had: BTreeSet<usize>,
    /// Somewhere no bucket has it.
    open: bool,
}

impl Policy {
    /// Whatever a tenant can send that no window and no bucket holds, while a rule enforces.
    pub(crate) fn ways_out(&self) -> Vec<WayOut> {
        // By rule and by the buckets that hold only elsewhere; by bucket.
        let mut open: BTreeMap<(usize, Kind, Vec<usize>), Vec<Class>> = BTreeMap::new();
        let mut counted: BTreeMap<usize, (usize, Vec<Class>)> = BTreeMap::new();
        for (class, kind) in Class::ALL
            .into_iter()
            .filter_map(|class| Some((class, class.kind()?)))
        {
            let mut is_open = false;
            for (index, rule) in self.enforcing() {
                let fate = self.fate(&rule.place, class);
                for bucket in fate.had.iter().filter(|at| !self.buckets[**at].enforce) {
                    let (_, classes) = counted.entry(*bucket).or_insert((index, Vec::new()));
                    if !classes.contains(&class) {
                        classes.push(class);
                    }
                }
                if fate.open && !is_open {
                    is_open = true;
                    let key = (index, kind, Vec::from_iter(fate.had));
                    open.entry(key).or_default().push(class);
                }
            }
        }
        let open = open
            .into_iter()
            .map(|((rule, _, elsewhere), classes)| self.unheld(rule, &elsewhere, &classes));
        let counted = counted
            .into_iter()
            .map(|(bucket, (rule, classes))| self.only_counted(bucket, rule, &classes));
        open.chain(counted).collect()
    }

    /// The first rule that enforces, where such packets are a way out of it.
    pub(crate) fn way_out_of(&self, class: Class) -> Option<(usize, &Rule)> {
        self.enforcing().next().filter(|_| class.kind().is_some())
    }

    fn enforcing(&self) -> impl Iterator<Item = (usize, &Rule)> {
        let rules = self.rules.iter().enumerate();
        rules.filter(|(_, rule)| rule.mode == Mode::Enforce)
    }

    fn fate(&self, place: &Where, class: Class) -> Fate {
        let mut fate = Fate::default();
        for place in place.alternatives() {
            let mut before: Vec<&Bucket> = Vec::new();
            let mut open = true;
            for (index, bucket) in self.buckets.iter().enumerate() {
                let shadowed =
                    |bucket: &Bucket| before.iter().any(|b| b.place.includes(&bucket.place));
                if !bucket.classes.contains(&class)
                    || bucket.place.is_apart_from(&place)
                    || shadowed(bucket)
                {
                    continue;
                }
                fate.had.insert(index);
                before.push(bucket);
                if bucket.place.includes(&place) {
                    open = false;
                    break;
                }
            }
            fate.open |= open;
        }
        fate
    }

    /// Classes without a bucket where a rule enforces; `elsewhere` has them at other interfaces.
    fn unheld(&self, rule: usize, elsewhere: &[usize], classes: &[Class]) -> WayOut {
        let found = match elsewhere {
            [] => {
                let place = self.rules[rule].place.describe();
                let at = if place.is_empty() { "" } else { " at " };
                format!("no bucket has class {}{at}{place}", names(classes, " or "))
            }
            some => {
                let places = some.iter().map(|index| {
                    let bucket = &self.buckets[*index];
                    format!("{} ({})", bucket.place.describe(), bucket.label(*index))
                });
                let places: Vec<String> = places.collect();
                let names = names(classes, " and ");
                format!("only {} has a bucket for {names}", places.join(", "))
            }
        };
        let class = written(classes);
        let unconditional = match elsewhere {
            [] => "",
            _ => " without a condition, after the others,",
        };
        WayOut {
            at: At::Rule(rule),
            weight: Weight::Warning,
            complaint: Complaint::new(
                format!(
                    "enforces, but {found}: {}",
                    self.figures(classes, Weight::Warning)
                ),
                format!(
                    "add a [[bucket]]{unconditional} with class = {class}, a rate, and mode = \
                     \"observe\" to begin with, then \"enforce\" (docs/operators.md says when)"
                ),
            ),
            snippet: format!(
                "[[bucket]]\n\
                 class = {class}\n\
                 rate = \"100Mbit\"    # for each interface: what its tenant needs of this\n\
                 mode = \"observe\"    # counts what is beyond; \"enforce\" drops it\n"
            ),
        }
    }

    /// Classes whose bucket drops nothing while a rule enforces.
    fn only_counted(&self, bucket: usize, rule: usize, classes: &[Class]) -> WayOut {
        let behind = self.buckets.iter().enumerate().skip(bucket + 1);
        let mut behind = behind.filter(|(_, other)| {
            other.enforce && classes.iter().any(|class| other.classes.contains(class))
        });
        let behind = behind.next().map_or(String::new(), |(index, other)| {
            format!(" (it comes before {}, which enforces)", other.label(index))
        });
        WayOut {
            at: At::Bucket(bucket),
            weight: Weight::Note,
            complaint: Complaint::new(
                format!(
                    "counts {} and drops nothing{behind}, while {} enforces: {}",
                    names(classes, " and "),
                    self.rules[rule].label(rule),
                    self.figures(classes, Weight::Note),
                ),
                "set mode = \"enforce\" once `bucket_exceeded` stays 0 (docs/operators.md)",
            ),
            snippet: String::new(),
        }
    }

    /// The bandwidth that such packets took where nothing held them, at length or in short.
    fn figures(&self, classes: &[Class], weight: Weight) -> String {
        let mut figures = Vec::new();
        if classes.iter().any(|class| *class != Class::BareTcp) {
            figures.push(self.took(classes, weight));
        }
        if classes.contains(&Class::WatchedTcp) {
            let beyond = "flows beyond an interface's quota or a full table pass unheld";
            figures.push(beyond.to_owned());
        }
        if classes.contains(&Class::BareTcp) {
            let bare = "segments without data are held by no window, however many a tenant sends";
            figures.push(bare.to_owned());
        }
        figures.join("; ")
    }

    fn took(&self, classes: &[Class], weight: Weight) -> String {
        let passes = |(_, rule): (usize, &Rule)| rule.mptcp == Mptcp::Pass;
        let watched = classes.contains(&Class::WatchedTcp);
        let mut took = Vec::new();
        if watched && self.enforcing().any(passes) {
            took.push("MPTCP took 273");
        }
        if classes.contains(&Class::Udp) {
            took.extend([
                "UDP took 281",
                "TCP inside VXLAN 268",
                "QUIC without ECN 231",
            ]);
        }
        let (shared, helped) = match weight {
            Weight::Warning => (
                "of 300 Mb/s shared with three honest flows (even share 75; honest ones get 60 to \
                 110)",
                " (131 with enforcement off: enforcing TCP alone helps it)",
            ),
            Weight::Note => ("of 300 Mb/s (even share 75)", ""),
        };
        match took.as_slice() {
            [] if watched => {
                "TCP without a handshake, or to a peer that acknowledges nothing, is held by \
                              no window"
                    .to_owned()
            }
            [] => format!(
                "TCP wrapped in such packets is held by no window (inside VXLAN it took 268, \
                 {shared})"
            ),
            [.., last] if last.starts_with("QUIC") => {
                format!("{shared} {}{helped}", took.join(", "))
            }
            _ => format!("{shared} {}", took.join(", ")),
        }
    }
}

/// The kinds of warnings that are given together, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Watched,
    Others,
    Bare,
}

impl Class {
    /// Of what kind it is, if TCP can hide in it or what it carries compete with TCP.
    fn kind(self) -> Option<Kind> {
        match self {
            Self::WatchedTcp => Some(Kind::Watched),
            Self::BareTcp => Some(Kind::Bare),
            _ => Self::NON_TCP.contains(&self).then_some(Kind::Others),
        }
    }
}

/// Names of classes, several of them by the name that stands for all.
fn shortened(classes: &[Class]) -> Vec<&'static str> {
    let all = Class::NON_TCP.iter().all(|class| classes.contains(class));
    let others = classes
        .iter()
        .filter(|class| !(all && Class::NON_TCP.contains(class)));
    let names = all.then_some("non-tcp").into_iter();
    names.chain(others.map(|class| class.name())).collect()
}

fn names(classes: &[Class], last: &str) -> String {
    let names = shortened(classes);
    match names.as_slice() {
        [before @ .., one, other] => {
            let before: String = before.iter().map(|name| format!("{name}, ")).collect();
            format!("{before}{one}{last}{other}")
        }
        few => few.concat(),
    }
}

/// As the value of `class`.
fn written(classes: &[Class]) -> String {
    let names: Vec<String> = shortened(classes)
        .iter()
        .map(|name| format!("\"{name}\""))
        .collect();
    match names.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}
