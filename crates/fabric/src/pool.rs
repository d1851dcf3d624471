//! The pool of frames under way. A frame has one place from the sender's adapter to the receiver,
//! so a hop moves a number and not a packet. The place that was freed last is used first, since it
//! is still in the cache.

use prefetch_index::prefetch_index;

use sluicegate_core::number::{index, narrow};

use crate::port::Frame;

/// A frame's place.
pub type Handle = u32;

/// No frame.
pub const NIL: Handle = Handle::MAX;

/// A frame, and the fields that its present port keeps of it: one cache line, if the frame has 44
/// bytes.
#[repr(C, align(64))]
struct Node<F> {
    frame: F,
    next: Handle,
    arrival_ps: u64,
    /// When the next frame arrives: kept here, so that the next frame itself is not read for it.
    next_ps: u64,
}

/// The frames under way.
pub struct Pool<F> {
    nodes: Vec<Node<F>>,
    free: Handle,
}

impl<F> Default for Pool<F> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: NIL,
        }
    }
}

impl<F> Pool<F> {
    /// Finds a place for a frame.
    #[inline]
    pub fn insert(&mut self, frame: F) -> Handle {
        let node = Node {
            frame,
            next: NIL,
            arrival_ps: 0,
            next_ps: 0,
        };
        let handle = self.free;
        match self.nodes.get_mut(handle as usize) {
            Some(place) => {
                self.free = place.next;
                *place = node;
                handle
            }
            // Not a function of its own: a frame that is passed on is first made elsewhere.
            None => {
                self.nodes.push(node);
                narrow::<Handle>(self.nodes.len()) - 1
            }
        }
    }

    /// Releases a frame: its place is free.
    pub fn release(&mut self, handle: Handle) {
        self.nodes[handle as usize].next = self.free;
        self.free = handle;
    }

    /// Every frame in the pool with its place: a walk over all places.
    pub fn frames(&self) -> impl Iterator<Item = (Handle, &F)> {
        let mut is_free = vec![false; self.nodes.len()];
        let mut free = self.free;
        while free != NIL {
            is_free[free as usize] = true;
            free = self.nodes[free as usize].next;
        }
        let nodes = (0..).zip(&self.nodes).zip(is_free);
        nodes.filter_map(|((handle, node), is_free)| (!is_free).then_some((handle, &node.frame)))
    }

    /// Frames in the pool, counted one by one.
    pub fn len(&self) -> usize {
        self.nodes.len() - index(self.count(self.free))
    }

    /// True if nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Places in the list that begins with `first`.
    pub(crate) fn count(&self, first: Handle) -> u64 {
        let frame = |handle: Handle| (handle != NIL).then_some(handle);
        std::iter::successors(frame(first), |&handle| frame(self.next(handle))).count() as u64
    }

    /// Bytes in the list that begins with `first`.
    pub(crate) fn bytes(&self, first: Handle) -> u64
    where
        F: Frame,
    {
        let frame = |handle: Handle| (handle != NIL).then_some(handle);
        std::iter::successors(frame(first), |&handle| frame(self.next(handle)))
            .map(|handle| u64::from(self[handle].bytes()))
            .sum()
    }

    /// (A frame, the next frame in its list, the time at which the next frame arrives.)
    #[inline]
    pub(crate) fn look(&self, handle: Handle) -> (&F, Handle, u64) {
        let node = &self.nodes[handle as usize];
        (&node.frame, node.next, node.next_ps)
    }

    /// Prefetches a place of the pool.
    #[inline]
    pub(crate) fn fetch(&self, handle: Handle) {
        if handle != NIL {
            prefetch_index(&self.nodes, handle as usize);
        }
    }

    pub(crate) fn arrival_ps(&self, handle: Handle) -> u64 {
        self.nodes[handle as usize].arrival_ps
    }

    pub(crate) fn next(&self, handle: Handle) -> Handle {
        self.nodes[handle as usize].next
    }

    /// The note that a frame keeps in place of its arrival time: see [`Pool::set_note`].
    #[inline]
    pub(crate) fn note(&self, handle: Handle) -> u64 {
        self.nodes[handle as usize].arrival_ps
    }

    /// Keeps something with a frame until it is [`Pool::sent`] again.
    #[inline]
    pub(crate) fn set_note(&mut self, handle: Handle, note: u64) {
        self.nodes[handle as usize].arrival_ps = note;
    }

    /// It is the last of its list; its note stays.
    #[inline]
    pub(crate) fn end(&mut self, handle: Handle) {
        self.nodes[handle as usize].next = NIL;
    }

    /// It arrives at this time and is the last of its list.
    pub(crate) fn sent(&mut self, handle: Handle, arrival_ps: u64) {
        let node = &mut self.nodes[handle as usize];
        (node.arrival_ps, node.next) = (arrival_ps, NIL);
    }

    /// It arrives at this time and follows the one that was the last.
    pub(crate) fn link_after(&mut self, last: Handle, handle: Handle, arrival_ps: u64) {
        let node = &mut self.nodes[last as usize];
        (node.next, node.next_ps) = (handle, arrival_ps);
    }
}

impl<F> std::ops::Index<Handle> for Pool<F> {
    type Output = F;

    fn index(&self, handle: Handle) -> &F {
        &self.nodes[handle as usize].frame
    }
}

impl<F> std::ops::IndexMut<Handle> for Pool<F> {
    fn index_mut(&mut self, handle: Handle) -> &mut F {
        &mut self.nodes[handle as usize].frame
    }
}
