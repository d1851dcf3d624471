//! A port of shared memory, in the hands of the worker.

use std::{os::unix::net::UnixStream, sync::Arc};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::{Deserialize, Serialize};

use super::{
    layout::Layout,
    pfc::{FlowControl, PfcState},
    rings::{Receiver, ReceiverState, Sender, SenderState},
    shares::CONTROL,
};
use crate::{
    frame::Frame,
    ledger::PortRecord,
    memory::{Memory, Refused},
    offload::{Takes, Work},
    port::{Delivery, Intake, Outgoing},
    ring::Broken,
    vhost::session::Mode,
};

/// What both sides have agreed upon.
#[derive(Clone, Debug)]
pub struct Agreed {
    /// Which side of the socket this one is.
    pub mode: Mode,
    /// Sizes.
    pub layout: Layout,
    /// What the peer takes.
    pub takes: Takes,
    /// The shared memory.
    pub memory: Arc<Memory>,
}

/// Where a cable is, for another process that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CableState {
    /// Sizes.
    pub layout: Layout,
    /// What the peer takes.
    pub takes: Takes,
    sender: SenderState,
    receiver: ReceiverState,
    /// Kicks that were asked for and have not come.
    kicks_due: u64,
    /// Its flow control.
    pfc: Option<PfcState>,
}

/// One end of a cable whose other end is there.
#[derive(Debug)]
pub struct Plug {
    agreed: Agreed,
    stream: UnixStream,
    sender: Sender,
    receiver: Receiver,
    kicks_due: u64,
    /// The flow control of another process.
    before: Option<PfcState>,
}

impl Plug {
    /// Of a fresh memory, or where another process was.
    ///
    /// # Errors
    /// The memory is too short, or the state contradicts itself.
    pub fn new(
        agreed: Agreed,
        stream: UnixStream,
        state: Option<&CableState>,
    ) -> Result<Self, Refused> {
        let (out, inward) = match agreed.mode {
            Mode::Server => (0, 1),
            Mode::Client => (1, 0),
        };
        let (memory, layout) = (&agreed.memory, agreed.layout);
        let fresh = (SenderState::default(), ReceiverState::default());
        let (sends, receives) = match state {
            Some(state) => (&state.sender, &state.receiver),
            None => (&fresh.0, &fresh.1),
        };
        Ok(Self {
            sender: Sender::new(memory, layout, out, sends)?,
            receiver: Receiver::new(memory, layout, inward, receives)?,
            kicks_due: state.map_or(0, |state| state.kicks_due),
            before: state.and_then(|state| state.pfc.clone()),
            agreed,
            stream,
        })
    }

    /// Where it is, for another process.
    pub fn state(&self) -> CableState {
        CableState {
            layout: self.agreed.layout,
            takes: self.agreed.takes,
            sender: self.sender.state(),
            receiver: self.receiver.state(),
            kicks_due: self.kicks_due,
            pfc: None,
        }
    }

    /// What both sides have agreed upon.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// Readable when the peer kicks, or has gone.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Fills `frame` with the next one.
    ///
    /// # Errors
    /// The peer breaks the rules.
    #[inline]
    pub fn take(&mut self, frame: &mut Frame) -> Result<Intake, Broken> {
        self.receiver.take(&self.agreed.memory, frame)
    }

    /// All exits have a frame of the peer.
    #[inline]
    pub fn release(&mut self, token: u16) {
        self.receiver.release(&self.agreed.memory, token);
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The peer breaks the rules.
    #[inline]
    pub fn deliver(&mut self, frame: &Outgoing<'_>) -> Result<Delivery, Broken> {
        if !self.agreed.takes.takes(frame.work) {
            // It waited for a peer that took more.
            return Ok(Delivery::Refused);
        }
        self.sender.put(&self.agreed.memory, frame)
    }

    /// Sends a frame of MAC control. False: there is no room.
    ///
    /// # Errors
    /// The peer breaks the rules.
    pub fn control(&mut self, frame: &[u8]) -> Result<bool, Broken> {
        let memory = Memory::default();
        let mut frame = Outgoing::whole(frame, Work::default(), &memory);
        frame.lane = CONTROL;
        let sent = self.sender.put(&self.agreed.memory, &frame)?;
        Ok(sent == Delivery::Done)
    }

    /// Priorities whose share of the buffers is used up, bit p.
    ///
    /// # Errors
    /// The peer breaks the rules.
    #[inline]
    pub fn full_lanes(&mut self) -> Result<u8, Broken> {
        self.sender.full_lanes(&self.agreed.memory)
    }

    /// Whether a frame that did not fit may fit now.
    ///
    /// # Errors
    /// The peer breaks the rules.
    pub fn has_new_room(&mut self) -> Result<bool, Broken> {
        self.sender.has_new_room(&self.agreed.memory)
    }

    /// No frame waits for room any more.
    pub fn unblock(&mut self) {
        self.sender.unblock();
    }

    /// Shows the peer what it has received (`sent = false`), or which buffers it may fill again
    /// (`sent = true`), and kicks it if it asked for that.
    #[inline]
    pub fn publish(&mut self, sent: bool) {
        let kicks = match sent {
            false => self.sender.show(),
            true => self.receiver.show(),
        };
        if kicks {
            // A full socket holds a kick already, and a closed one has no reader.
            let _ = send(
                &self.stream,
                &[0],
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            );
        }
    }

    /// Asks for kicks before its thread sleeps. Whether there is work already.
    ///
    /// # Errors
    /// The peer breaks the rules.
    pub fn arm(&mut self) -> Result<bool, Broken> {
        self.kicks_due += 1;
        let has_frames = self.receiver.arm()?;
        let (waits, has_room) = self.sender.arm()?;
        self.kicks_due += u64::from(waits);
        Ok(has_frames || has_room)
    }

    /// Its thread is awake.
    pub fn disarm(&mut self) {
        // What was asked for and is not any more does not come.
        let taken_back = [self.receiver.disarm(), self.sender.disarm()];
        let taken_back = taken_back.map(u64::from).iter().sum();
        self.kicks_due = self.kicks_due.saturating_sub(taken_back);
    }

    /// Reads the kicks that have come. False if the peer has gone.
    ///
    /// # Errors
    /// There are more than were asked for.
    pub fn kicked(&mut self) -> Result<bool, Broken> {
        let mut kicks = [0; 64];
        match recv(&self.stream, &mut kicks[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => Ok(false),
            Ok((_, count)) => {
                let left = self.kicks_due.checked_sub(count as u64);
                self.kicks_due = left.ok_or(Broken("it kicks without being asked"))?;
                Ok(true)
            }
            Err(error) => Ok(error == rustix::io::Errno::AGAIN),
        }
    }

    /// Frames that the peer has been given and has not returned.
    pub fn unread(&mut self) -> u64 {
        // What a peer that breaks the rules has returned makes no difference any more.
        let _ = self.sender.collect(&self.agreed.memory);
        self.sender.unread()
    }
}

/// A port: an end of a cable, with or without its other end.
#[derive(Debug, Default)]
pub struct Cable {
    plug: Option<Plug>,
    /// What the last peer took; before the first one nothing.
    takes: Takes,
    record: Option<PortRecord>,
    flow: Option<Box<FlowControl>>,
}

impl Cable {
    /// Without its other end. The record says whether a predecessor had one.
    pub fn new(record: Option<PortRecord>) -> Self {
        Self {
            record,
            ..Self::default()
        }
    }

    /// The other end, if it is there.
    pub fn plug(&self) -> Option<&Plug> {
        self.plug.as_ref()
    }

    /// The other end, if it is there.
    pub fn plug_mut(&mut self) -> Option<&mut Plug> {
        self.plug.as_mut()
    }

    /// With flow control by priority.
    #[must_use]
    pub fn with_flow(mut self, flow: Option<FlowControl>) -> Self {
        self.flow = flow.map(Box::new);
        self
    }

    /// Its flow control by priority, if the file says so.
    #[inline]
    pub fn flow(&self) -> Option<&FlowControl> {
        self.flow.as_deref()
    }

    /// The other end, if it is there, and the flow control, if the file says so.
    #[inline]
    pub fn flow_mut(&mut self) -> Option<(Option<&mut Plug>, &mut FlowControl)> {
        Some((self.plug.as_mut(), self.flow.as_deref_mut()?))
    }

    /// Where it is, for another process; without its other end nowhere.
    pub fn state(&self, now_ns: u64) -> Option<CableState> {
        let mut state = self.plug.as_ref()?.state();
        state.pfc = self.flow.as_ref().map(|flow| flow.state(now_ns));
        Some(state)
    }

    /// A frame of the peer has a priority, until it is released.
    #[inline]
    pub fn charge(&mut self, token: Option<u16>, lane: u8, bytes: u32) {
        if let (Some(flow), Some(token)) = (&mut self.flow, token) {
            flow.charge(token, lane, bytes);
        }
    }

    /// All exits have a frame of the peer.
    #[inline]
    pub fn release(&mut self, token: u16) {
        if let Some(flow) = &mut self.flow {
            flow.release(token);
        }
        if let Some(plug) = &mut self.plug {
            plug.release(token);
        }
    }

    /// The other end is there.
    ///
    /// # Errors
    /// Its buffers cannot hold the headroom of flow control.
    pub fn join(&mut self, mut plug: Plug, now_ns: u64) -> Result<(), String> {
        if let Some(flow) = &mut self.flow {
            let layout = plug.agreed.layout;
            let plan = flow.settings().plan(layout);
            let plan = plan.map_err(|shortage| shortage.reason())?;
            plug.sender.share(flow.settings().lossless, plan.share);
            flow.join(plan, layout, plug.before.take().as_ref(), now_ns);
        }
        self.takes = plug.agreed.takes;
        self.plug = Some(plug);
        self.note(true);
        Ok(())
    }

    /// The other end is gone. Its frames have been copied out. How many frames it has not read.
    pub fn part(&mut self, now_ns: u64) -> u64 {
        if let Some(flow) = &mut self.flow {
            flow.part(now_ns);
        }
        let plug = self.plug.take();
        plug.map_or(0, |mut plug| plug.unread())
    }

    /// Whether a predecessor of this process had the other end when it ended.
    pub fn was_up(&self) -> bool {
        let record = self.record.as_ref();
        record.is_some_and(|record| record.was_up().is_some())
    }

    /// Says a successor whether frames may wait for the other end.
    pub fn note(&self, is_up: bool) {
        if let Some(record) = &self.record {
            record.set_up(usize::from(is_up), 0);
        }
    }

    /// What its peer takes.
    pub fn takes(&self) -> Takes {
        self.takes
    }
}
