//! Conditions on the names of interfaces and tenants, which the data plane does not know. The
//! process that attaches to an interface evaluates them once, and gives the data plane the set of
//! rules that hold there.

use glob::Pattern;

use crate::explain::any_of;

/// Conditions with more alternatives are compared as a whole.
const ALTERNATIVES_MAX: usize = 256;

/// Shell patterns of interfaces and of tenants; without any, everywhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Where {
    /// Any of these covers the interface's name; empty = any interface.
    pub interfaces: Vec<Pattern>,
    /// Any of these covers the name of the tenant behind it; empty = any tenant.
    pub tenants: Vec<Pattern>,
}

impl Where {
    /// Whether there is no condition.
    pub fn is_anywhere(&self) -> bool {
        self.interfaces.is_empty() && self.tenants.is_empty()
    }

    /// Whether the conditions hold at the interface called `interface`, behind which `tenant` is.
    pub fn holds(&self, interface: &str, tenant: &str) -> bool {
        covers(&self.interfaces, interface) && covers(&self.tenants, tenant)
    }

    /// Whether these conditions hold wherever those of `other` do; may miss it for patterns with
    /// brackets.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        let all = |ours: &[Pattern], theirs: &[Pattern]| match theirs {
            [] => ours.is_empty() || ours.iter().any(|pattern| pattern.as_str() == "*"),
            theirs => {
                let one = |their: &Pattern| ours.iter().any(|our| includes(our, their));
                ours.is_empty() || theirs.iter().all(one)
            }
        };
        all(&self.interfaces, &other.interfaces) && all(&self.tenants, &other.tenants)
    }

    /// Whether these conditions hold nowhere where those of `other` do; may miss it where patterns
    /// begin alike.
    pub(crate) fn is_apart_from(&self, other: &Self) -> bool {
        let apart = |ours: &[Pattern], theirs: &[Pattern]| {
            let mut pairs = ours
                .iter()
                .flat_map(|our| theirs.iter().map(move |their| (our, their)));
            !ours.is_empty()
                && !theirs.is_empty()
                && pairs.all(|(our, their)| never_meet(our, their))
        };
        apart(&self.interfaces, &other.interfaces) || apart(&self.tenants, &other.tenants)
    }

    /// The same conditions as alternatives of one pattern each; as they are where that would be
    /// very many.
    pub(crate) fn alternatives(&self) -> Vec<Self> {
        let each = |patterns: &[Pattern]| -> Vec<Vec<Pattern>> {
            match patterns {
                [] => vec![Vec::new()],
                some => some.iter().map(|pattern| vec![pattern.clone()]).collect(),
            }
        };
        let (interfaces, tenants) = (each(&self.interfaces), each(&self.tenants));
        if interfaces.len().saturating_mul(tenants.len()) > ALTERNATIVES_MAX {
            return vec![self.clone()];
        }
        let pairs = interfaces
            .iter()
            .flat_map(|one| tenants.iter().map(move |other| (one, other)));
        pairs
            .map(|(interfaces, tenants)| Self {
                interfaces: interfaces.clone(),
                tenants: tenants.clone(),
            })
            .collect()
    }

    /// The conditions as people read them; empty without any.
    pub fn describe(&self) -> String {
        let both = [("interface", &self.interfaces), ("tenant", &self.tenants)];
        let conditions = both
            .into_iter()
            .filter(|(_, patterns)| !patterns.is_empty());
        let texts: Vec<String> = conditions
            .map(|(what, patterns)| format!("{what} {}", any_of(patterns)))
            .collect();
        texts.join(", ")
    }

    /// A number for these conditions, never 0 for any and 0 for none: equal conditions have equal
    /// numbers.
    pub fn id(&self) -> u32 {
        if self.is_anywhere() {
            return 0;
        }
        let words = self.interfaces.iter().chain(&self.tenants);
        let mut text = format!("{}", self.interfaces.len());
        for word in words {
            text.push('\0');
            text.push_str(word.as_str());
        }
        fnv1a(text.as_bytes()).max(1)
    }
}

pub(crate) fn covers(patterns: &[Pattern], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(name))
}

/// The text of a pattern before its first wildcard, and whether it has no wildcard.
fn beginning(pattern: &Pattern) -> (&str, bool) {
    let text = pattern.as_str();
    let end = text.find(['*', '?', '[']).unwrap_or(text.len());
    (&text[..end], end == text.len())
}

/// Whether every name that `narrow` covers is covered by `wide`. A text of wildcards and letters
/// stands for its names where `*` is all that `wide` has to meet them with.
fn includes(wide: &Pattern, narrow: &Pattern) -> bool {
    let stands_for_its_names = beginning(narrow).1
        || (!narrow.as_str().contains('[') && !wide.as_str().contains(['?', '[']));
    wide == narrow
        || wide.as_str() == "*"
        || (stands_for_its_names && wide.matches(narrow.as_str()))
}

/// Whether no name is covered by both.
fn never_meet(one: &Pattern, other: &Pattern) -> bool {
    match (beginning(one), beginning(other)) {
        ((name, true), _) => !other.matches(name),
        (_, (name, true)) => !one.matches(name),
        ((a, _), (b, _)) => !a.starts_with(b) && !b.starts_with(a),
    }
}

/// FNV-1a with 32 bits (Fowler, Noll, Vo): stable from one build to the next, unlike std's hashers.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts
            .iter()
            .map(|text| Pattern::new(text).unwrap())
            .collect()
    }

    #[test]
    fn all_conditions_must_hold() {
        let place = Where {
            interfaces: patterns(&["veth*", "tap0"]),
            tenants: patterns(&["blue"]),
        };
        assert!(place.holds("veth7", "blue") && place.holds("tap0", "blue"));
        assert!(!place.holds("veth7", "red") && !place.holds("tap1", "blue"));
        assert!(Where::default().holds("anything", ""));
    }

    fn at(interfaces: &[&str], tenants: &[&str]) -> Where {
        Where {
            interfaces: patterns(interfaces),
            tenants: patterns(tenants),
        }
    }

    #[test]
    fn conditions_include_others_and_exclude_others() {
        let everywhere = Where::default();
        for (wide, narrow) in [
            (everywhere.clone(), at(&["veth*"], &["blue"])),
            (at(&["*"], &[]), everywhere.clone()),
            (
                at(&["veth*"], &[]),
                at(&["veth1*", "veth?", "veth[ab]"][..2], &["blue"]),
            ),
            (at(&["veth?"], &[]), at(&["veth1"], &[])),
            (at(&["veth[ab]"], &[]), at(&["veth[ab]"], &[])),
        ] {
            assert!(
                wide.includes(&narrow) && !wide.is_apart_from(&narrow),
                "{wide:?} {narrow:?}"
            );
        }
        for (wide, narrow) in [
            (at(&["veth*"], &[]), everywhere.clone()),
            (at(&["veth?"], &[]), at(&["veth*"], &[])),
            (at(&["veth[*]"], &[]), at(&["veth*"], &[])),
            (at(&["veth*"], &["blue"]), at(&["veth*"], &[])),
            (at(&["veth*"], &[]), at(&["veth1", "tap0"], &[])),
        ] {
            assert!(
                !wide.includes(&narrow) && !wide.is_apart_from(&narrow),
                "{wide:?} {narrow:?}"
            );
        }
        for (one, other) in [
            (at(&["veth*"], &[]), at(&["tap*", "br0"], &[])),
            (at(&[], &["blue"]), at(&["veth*"], &["r?d", "green"])),
            (at(&["veth[ab]"], &[]), at(&["vethc"], &[])),
        ] {
            assert!(
                one.is_apart_from(&other) && other.is_apart_from(&one),
                "{one:?} {other:?}"
            );
            assert!(!one.includes(&other) && !other.includes(&one));
        }
        assert_eq!(
            at(&["a", "b"], &["c"]).alternatives(),
            [at(&["a"], &["c"]), at(&["b"], &["c"])]
        );
        assert_eq!(everywhere.alternatives(), [Where::default()]);
    }

    #[test]
    fn ids_tell_conditions_apart() {
        let of = |interfaces: &[&str], tenants: &[&str]| {
            Where {
                interfaces: patterns(interfaces),
                tenants: patterns(tenants),
            }
            .id()
        };
        assert_eq!(of(&[], &[]), 0);
        assert_eq!(of(&["a"], &["b"]), of(&["a"], &["b"]));
        let all = [
            of(&["a"], &[]),
            of(&[], &["a"]),
            of(&["a", "b"], &[]),
            of(&["a"], &["b"]),
        ];
        for (i, id) in all.iter().enumerate() {
            assert!(*id != 0 && !all[..i].contains(id));
        }
    }
}
