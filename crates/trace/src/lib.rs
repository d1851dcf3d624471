//! Recording of MPI programs: the library that stands between a program and MPI ([`record`]), the
//! traces that it writes ([`format`]), and the program that they become ([`merge`]).
//!
//! The library is C (`c/`), and is compiled where a program is recorded, with the `mpicc` of that
//! machine: nothing else here needs MPI.

mod expand;
pub mod format;
pub mod merge;
pub mod record;
mod survey;
