//! Conditions on interface and tenant: names, which the data plane does not know. Whoever attaches to an
//! interface evaluates them once and gives the data plane the set of rules that hold there.

use glob::Pattern;

use crate::explain::any_of;

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

    /// A number for these conditions, never 0 for any and 0 for none: equal conditions have equal numbers.
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
