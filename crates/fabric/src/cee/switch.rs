//! A switch: how a frame passes from an input to an output, waits, or is dropped.

use super::{Cee, CeeFrame, Label, Notification, OwnEffect, PRIORITIES, QueueKey, buffer::Share};
use crate::{
    graph::{Node, PortId, SwitchId},
    pool::{Handle, Pool},
    port::Drop,
};

impl Label {
    /// The room that a frame of `bytes` takes in the buffer of its input.
    #[inline]
    fn share(self, bytes: u32) -> Share {
        Share {
            ingress: self.ingress,
            priority: usize::from(self.priority),
            bytes,
        }
    }
}

impl Cee {
    /// Room of each lossless priority above XOFF in the buffer at a port's far end.
    pub fn headroom_bytes(&self, port: PortId) -> u64 {
        self.buffers.headroom_bytes(port)
    }

    /// A switch forwards a frame that has arrived over `ports[0]` to `ports[1]`. The frame leaves
    /// now or when its turn comes, or it is dropped.
    #[inline(always)]
    pub fn forward<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        ports: [PortId; 2],
        handle: Handle,
        now_ps: u64,
    ) {
        if self.may_pass(pool, ports[1], handle, now_ps) {
            self.out
                .start(&mut self.requests, pool, ports[1], handle, now_ps);
        } else {
            self.forward_behind(pool, ports, handle, now_ps);
        }
    }

    /// Whether the output port is idle, its queues are empty, the frame's priority is not paused,
    /// and the port neither drops, marks nor samples the frame. That holds for most frames. The
    /// port then counts the frame as accepted, and the caller has to send it at once. If the result
    /// is false, nothing has changed.
    #[inline(always)]
    fn may_pass<F: CeeFrame>(
        &mut self,
        pool: &Pool<F>,
        to: PortId,
        handle: Handle,
        now_ps: u64,
    ) -> bool {
        let (bytes, label) = (pool[handle].bytes(), Label::of(pool, handle));
        let state = &mut self.out[to];
        if !state.may_pass(label.priority, now_ps) || !state.is_plain() {
            return false;
        }
        if self.points.watch(label) && !self.points.skips(to, label.priority, bytes) {
            return false;
        }
        state.accept(bytes);
        true
    }

    /// Forwards a frame for which [`Cee::may_pass`] has returned false: a short way if the queue is
    /// short, else [`Cee::admit`].
    #[inline(never)]
    fn forward_behind<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        ports: [PortId; 2],
        handle: Handle,
        now_ps: u64,
    ) {
        self.catch_up(pool, ports[1], now_ps);
        if self.join_short_queue(pool, ports, handle, now_ps) {
            return;
        }
        // The frames before it may have left when the port caught up.
        if self.may_pass(pool, ports[1], handle, now_ps) {
            return self.start(pool, ports[1], handle, now_ps);
        }
        self.admit(pool, ports, handle, now_ps);
    }

    /// The short way for most frames that have to wait. The frame joins the queue of a busy port if
    /// the queue is too short for marks and drops, and if its input stays below all thresholds
    /// ([`InputBuffers::set_quiet_bytes`](super::buffer::InputBuffers)). Otherwise returns false,
    /// and nothing has changed.
    #[inline(always)]
    fn join_short_queue<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        [from, to]: [PortId; 2],
        handle: Handle,
        now_ps: u64,
    ) -> bool {
        let (bytes, tag) = (pool[handle].bytes(), Label::of(pool, handle));
        let priority = usize::from(tag.priority);
        let state = &self.out[to];
        if !state.is_plain() || state.is_idle(now_ps) || tag.control {
            return false;
        }
        let queued_bytes = self.out.queue(to, priority).bytes();
        let input = self.buffers.input_mut(from);
        let is_harmless = u64::from(queued_bytes) + u64::from(bytes) <= self.out.harmless_bytes(to);
        if !is_harmless || !input.stays_quiet(priority, bytes) {
            return false;
        }
        if self.points.watch(tag) && !self.points.skips(to, tag.priority, bytes) {
            return false;
        }
        input.take_quietly(priority, bytes);
        Label::set_buffered(pool, handle, from);
        self.out[to].accept(bytes);
        self.out.enqueue(pool, to, handle, (priority, bytes));
        if self.out[to].has_eligible() {
            self.out.await_free(&mut self.requests, to);
        }
        self.serve_kicked_ports(pool, now_ps);
        true
    }

    /// The general way: the frame is dropped, or leaves at once, or waits and takes room in the
    /// buffer of its input. The congestion point may sample it.
    #[inline(never)]
    fn admit<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        [from, to]: [PortId; 2],
        handle: Handle,
        now_ps: u64,
    ) {
        let bytes = pool[handle].bytes();
        // The label keeps the input only of a frame that takes room there.
        let tag = Label {
            ingress: from,
            buffered: false,
            ..Label::of(pool, handle)
        };
        let state = &self.out[to];
        let goes_through = state.goes_through(tag.priority, now_ps);
        // A frame that leaves at once takes no room, and its queue is empty.
        if !goes_through || state.averages() {
            if let Some(cause) = self.refuses(pool, to, handle, tag, now_ps) {
                return self.lose(pool, to, handle, cause);
            }
        }
        self.out[to].accept(bytes);
        if goes_through {
            self.start(pool, to, handle, now_ps);
        } else {
            self.enqueue(pool, to, handle, tag, now_ps);
        }
        if self.points.watch(tag) {
            self.sample(pool, to, handle, tag, bytes);
        }
        self.serve_kicked_ports(pool, now_ps);
    }

    /// The cause for which a frame is dropped on arrival; `None` if it is accepted. AQM may mark
    /// it.
    #[inline]
    fn refuses<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        to: PortId,
        handle: Handle,
        tag: Label,
        now_ps: u64,
    ) -> Option<Drop> {
        if self.out[to].is_down() {
            return Some(Drop::Down);
        }
        let (bytes, priority) = (pool[handle].bytes(), usize::from(tag.priority));
        if self.has_no_room(to, tag, bytes).is_some() {
            self.catch_up_neighbours(pool, to, now_ps);
            if let Some(cause) = self.has_no_room(to, tag, bytes) {
                return Some(cause);
            }
        }
        let queued_bytes = self.out.queue(to, priority).bytes();
        if u64::from(queued_bytes) + u64::from(bytes) <= self.out.harmless_bytes(to) {
            return None;
        }
        let spec = &self.specs[to.index()];
        self.out.judge(pool, spec, (to, handle), priority, now_ps)
    }

    /// The cause of a drop if the buffer of a frame's input has no room for it. Notifications made
    /// here take none.
    #[inline]
    fn has_no_room(&self, to: PortId, tag: Label, bytes: u32) -> Option<Drop> {
        if tag.is_made_at(to) {
            return None;
        }
        let queue_bytes = || self.out.queue(to, tag.priority.into()).bytes();
        self.buffers.has_no_room(tag.share(bytes), queue_bytes)
    }

    /// Puts a frame into the queue of its output and into the buffer of its input.
    fn enqueue<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        to: PortId,
        handle: Handle,
        tag: Label,
        now_ps: u64,
    ) {
        let (priority, bytes) = (usize::from(tag.priority), pool[handle].bytes());
        self.out.enqueue(pool, to, handle, (priority, bytes));
        if !tag.is_made_at(to) {
            self.hold(pool, to, handle, tag, now_ps);
        }
        // Even a frame whose priority is paused may make the port punctual for the others.
        let state = &self.out[to];
        if !state.has_eligible() {
            return;
        }
        if !state.is_idle(now_ps) {
            self.out.await_free(&mut self.requests, to);
        } else {
            self.out.kick(to);
        }
    }

    /// A frame takes room in the buffer of its input, which may pause its sender.
    #[inline]
    fn hold<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        to: PortId,
        handle: Handle,
        tag: Label,
        now_ps: u64,
    ) {
        let (priority, bytes) = (usize::from(tag.priority), pool[handle].bytes());
        let buffered = true;
        Label { buffered, ..tag }.put(pool, handle);
        if self.buffers.take(tag.share(bytes)) {
            self.keep_most(pool, to, tag, now_ps);
        }
        if self.buffers.lossless() & 1 << priority != 0 {
            self.pause_if_full(pool, tag.ingress, priority, now_ps);
        }
    }

    /// An input holds more than ever before, as far as is known. The lazy ports of its switch catch
    /// up first, since some of its frames may be due to have left.
    #[cold]
    fn keep_most<F: CeeFrame>(&mut self, pool: &mut Pool<F>, to: PortId, tag: Label, now_ps: u64) {
        self.catch_up_neighbours(pool, to, now_ps);
        self.buffers.keep_most(tag.ingress, tag.priority.into());
    }

    /// All ports of the switch that sends by `port` catch up.
    pub(super) fn catch_up_neighbours<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        now_ps: u64,
    ) {
        if let Node::Switch(switch) = self.specs[port.index()].near {
            self.catch_up_switch(pool, switch, now_ps);
        }
    }

    /// A frame that leaves a switch gives back its room in the buffer of its input, which may let
    /// its sender resume.
    #[inline(always)]
    pub(super) fn release<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        handle: Handle,
        bytes: u32,
        now_ps: u64,
    ) {
        let tag = Label::of(pool, handle);
        if !tag.buffered {
            return;
        }
        Label::clear_buffered(pool, handle);
        if self.buffers.give_back(tag.share(bytes)) {
            self.resume_if_empty(pool, tag.ingress, tag.priority.into(), now_ps);
        }
        if let Some(switch) = self.buffers.shares(tag.ingress) {
            self.share_again(pool, switch, now_ps);
        }
    }

    /// A shared memory has room again. Bytes in the headroom of paused inputs move there, and
    /// inputs below XON release their senders: an input's own frames may wait for another paused
    /// link.
    #[inline(never)]
    fn share_again<F: CeeFrame>(&mut self, pool: &mut Pool<F>, switch: SwitchId, now_ps: u64) {
        if self.buffers.pausing(switch) == 0 {
            return;
        }
        for at in 0..self.out.of_switch(switch).len() {
            // The opposite direction of the link leads to an input of the same switch.
            let input = self.out.of_switch(switch)[at].opposite();
            let paused = self.buffers.sent(input);
            for priority in (0..PRIORITIES).filter(|priority| paused & 1 << priority != 0) {
                self.buffers.leave_headroom(input, priority);
                self.resume_if_empty(pool, input, priority, now_ps);
            }
        }
    }

    /// The congestion point of an output queue samples the frame if one is due, and may make a
    /// notification.
    fn sample<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        to: PortId,
        handle: Handle,
        tag: Label,
        bytes: u32,
    ) {
        let found = (self.out).sample(&mut self.points, (to, tag.priority), bytes);
        let (Some(feedback), Node::Switch(switch)) = (found, self.specs[to.index()].near) else {
            return;
        };
        let destination = pool[handle].destination();
        let routes_at_sources = self.sources[usize::from(tag.priority)].is_some();
        let queue = QueueKey {
            destination,
            priority: tag.priority,
            path: match routes_at_sources {
                true => pool[handle].path(),
                false => pool[handle].queue_path(),
            },
        };
        let notification = Notification {
            source: tag.source,
            queue,
            port: to,
            feedback,
        };
        let mut frame = F::notification(&pool[handle], &notification);
        if routes_at_sources {
            frame.set_path(tag.source.0);
        }
        let notice = pool.insert(frame);
        // The notification takes no room in a buffer: see [`Label::is_made_at`].
        let label = Label {
            ingress: to.opposite(),
            source: destination,
            priority: self.points.notification_priority(),
            buffered: false,
            control: true,
        };
        label.put(pool, notice);
        self.points.count_made();
        self.out.count_notification(to);
        self.requests.own(OwnEffect::Notify(switch, notice));
    }
}
