//! Ports of shared memory: a cable between two switches of a host, or from a switch to any program.
//!
//! ```text
//!  switch ══ offered: buffers with frames ══▶ peer      twice, once for each direction;
//!         ◀═ returned: buffers that are free ═          all of it is in one memfd
//!         ◀── socket: handshake, kicks ──▶
//! ```
//!
//! The side that listens makes the memory, seals its length and passes it on ([`handshake`]). The
//! sender of a direction owns its buffers ([`rings`]): it fills free ones and offers them, and the
//! receiver gives each back when it is done with it, in any order. So a frame that waits in the
//! receiver keeps its own buffers and holds up no other frame. A sender without free buffers holds
//! its frames back. Either side sleeps when it has nothing to do, and is kicked if it asked for
//! that ([`lane`]).
//!
//! A kick is a byte on the socket, sent without waiting. An eventfd would belong to both sides: a
//! hostile peer could fill it, take its `O_NONBLOCK` away, and stop who kicks.

pub mod cable;
pub mod end;
pub mod handshake;
pub mod lane;
pub mod layout;
pub mod pfc;
pub mod rings;
pub mod session;
mod shares;
