//! Descriptors that this process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than any of the commands needs. Some programs go through all that they may have.
const ENOUGH: u64 = 1 << 20;

/// Raises the soft limit to the hard one, since tenants' interfaces, ports and processes take
/// descriptors: systemd, for example, gives 1024 of 524288, for the sake of select(2).
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(ENOUGH, |maximum| maximum.min(ENOUGH));
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        // A unit that forbids it sets LimitNOFILE=.
        tracing::debug!("the limit of descriptors stays as it is: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let before = getrlimit(Resource::Nofile);
        let low = Rlimit {
            current: before.maximum.map(|maximum| maximum.min(1024)),
            ..before
        };
        setrlimit(Resource::Nofile, low).expect("a lower limit");
        raise_limit();
        let after = getrlimit(Resource::Nofile);
        let wanted = before.maximum.map_or(ENOUGH, |most| most.min(ENOUGH));
        assert_eq!(after.current, Some(wanted));
    }
}
