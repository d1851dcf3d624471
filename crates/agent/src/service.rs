//! Messages to a service manager (systemd's notification protocol); none where none listens.

use std::time::Duration;

use nix::poll::PollTimeout;
use sd_notify::{NotifyState, notify};
use tracing::debug;

/// The service manager that started this process, if any.
#[derive(Debug)]
pub struct Service {
    /// How often it wants a sign of life.
    watchdog: Option<Duration>,
}

impl Service {
    /// Reads what the service manager left in the environment.
    pub fn of_environment() -> Self {
        Self {
            watchdog: sd_notify::watchdog_enabled(),
        }
    }

    /// It works; `status` is shown by `systemctl status`.
    pub fn ready(&self, status: &str) {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Something worth a line changed.
    pub fn status(&self, status: &str) {
        tell(&[NotifyState::Status(status)]);
    }

    /// It is about to end.
    pub fn stopping(&self, status: &str) {
        tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
    }

    /// A sign of life.
    pub fn alive(&self) {
        if self.watchdog.is_some() {
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// How long to wait for news, at most `patience`: until half of what the manager allows between
    /// signs of life is over.
    pub fn patience(&self, patience: Duration) -> PollTimeout {
        let patience = self
            .watchdog
            .map_or(patience, |interval| patience.min(interval / 2));
        PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX)
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        debug!("the service manager does not listen: {error}");
    }
}
