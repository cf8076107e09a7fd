//! What both sides of the kernel boundary must agree on: the layout of every map entry and the maths
//! of every limit.
//!
//! Nothing here does I/O, reads a clock or allocates: time and state are arguments, so the same
//! functions run in the kernel, in the daemon and in a test with numbers.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod abi;
pub mod gap;
pub mod limit;
