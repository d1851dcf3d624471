//! The congestion points of all output queues (802.1Q clause 30.2.1).

use super::{CongestionPoint, Feedback, Label, PRIORITIES, QcnConfig, QcnParams};
use crate::graph::PortId;

/// The congestion points of a port, by priority. They are apart from its queues, since frames that
/// do not wait count here, too.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Points([CongestionPoint; PRIORITIES]);

const _: () = assert!(size_of::<Points>() == 64);

/// The congestion points of all ports.
pub(super) struct CongestionPoints {
    points: Vec<Points>,
    params: Option<QcnParams>,
    /// Bit p: frames of priority p are sampled.
    priorities: u8,
    /// That of notifications.
    notification_priority: u8,
    /// Notifications made so far.
    made: u64,
}

impl CongestionPoints {
    /// The congestion points of so many ports with empty queues.
    pub fn new(config: Option<&QcnConfig>, ports: usize) -> Self {
        Self {
            points: vec![Points::default(); ports],
            params: config.map(|qcn| qcn.params),
            priorities: config.map_or(0, |qcn| qcn.priorities),
            notification_priority: config.map_or(7, |qcn| qcn.notification_priority),
            made: 0,
        }
    }

    /// Prefetches the congestion points of a port.
    #[inline]
    pub fn fetch(&self, port: PortId) {
        prefetch_index::prefetch_index(&self.points, port.index());
    }

    /// Whether a congestion point counts this frame: its priority is sampled, and it is no
    /// notification.
    #[inline(always)]
    pub fn watch(&self, label: Label) -> bool {
        self.priorities & 1 << label.priority != 0 && !label.control
    }

    /// Counts a frame of so many bytes if it is not to be sampled; else returns false, and nothing
    /// changes.
    #[inline(always)]
    pub fn skips(&mut self, port: PortId, priority: u8, bytes: u32) -> bool {
        self.points[port.index()].0[usize::from(priority)].skips(bytes)
    }

    /// A frame has joined a queue that holds `queue_bytes` with it. Returns the feedback to its
    /// source if the frame is sampled and there is congestion. `random` is the random state of the
    /// port.
    pub fn arrival(
        &mut self,
        (port, priority): (PortId, u8),
        queue_bytes: impl FnOnce() -> u64,
        bytes: u32,
        random: &mut u64,
    ) -> Option<Feedback> {
        let params = self.params.as_ref()?;
        let point = &mut self.points[port.index()].0[usize::from(priority)];
        point.arrival(params, queue_bytes, bytes, random)
    }

    /// The priority of notifications.
    pub fn notification_priority(&self) -> u8 {
        self.notification_priority
    }

    /// Counts a notification that was made.
    pub fn count_made(&mut self) {
        self.made += 1;
    }

    /// Notifications made so far.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Checks that ports have counted each notification, and that no congestion point waits for
    /// more than the longest interval.
    pub fn audit(&self, counted: u64) -> Result<(), String> {
        if counted != self.made {
            return Err(format!(
                "{} notifications were made but ports count {counted}",
                self.made
            ));
        }
        let Some(params) = &self.params else {
            return Ok(());
        };
        let all = self.points.iter().flat_map(|points| &points.0);
        match all.filter(|point| !point.is_within(params)).count() {
            0 => Ok(()),
            late => Err(format!("{late} congestion points sample too rarely")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::HostId;

    const LABEL: Label = Label {
        ingress: PortId(0),
        source: HostId(0),
        priority: 3,
        buffered: false,
        control: false,
    };

    fn points() -> CongestionPoints {
        let config = QcnConfig {
            priorities: 1 << 3,
            notification_priority: 6,
            rate_limiters: true,
            params: QcnParams::standard(),
        };
        CongestionPoints::new(Some(&config), 2)
    }

    #[test]
    fn only_frames_of_its_priorities_are_sampled_and_no_notifications() {
        let points = points();
        assert!(points.watch(LABEL));
        assert!(!points.watch(Label {
            priority: 2,
            ..LABEL
        }));
        let control = true;
        assert!(!points.watch(Label { control, ..LABEL }));
        assert!(!CongestionPoints::new(None, 1).watch(LABEL));
    }

    #[test]
    fn a_long_queue_is_told_of_and_counted() {
        let (mut points, mut random) = (points(), 1);
        let mut found = 0;
        for _ in 0..1_000 {
            let told = points.arrival((PortId(1), 3), || 1_000_000, 1_500, &mut random);
            if told.is_some() {
                points.count_made();
                found += 1;
            }
        }
        assert!(found > 5, "{found} samples of 1.5 MB");
        assert_eq!(points.audit(found), Ok(()));
        assert!(points.audit(found + 1).is_err());
        assert!(
            !points.skips(PortId(0), 3, 1),
            "the other port has seen nothing"
        );
    }
}
