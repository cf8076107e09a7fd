//! The packet path: from the bytes of a frame to a verdict and a counter.
//!
//! ```text
//! frame -> parse -> classify -> limit -> verdict -> count        (pipeline.rs reads as this line)
//! ```
//!
//! Everything here is pure: packet bytes, maps and the clock come in through [`frame::Frame`] and
//! [`tables::Tables`], so the kernel and the tests on the host run the same code.
#![no_std]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

mod budget;
pub mod classify;
pub mod cookie;
pub mod express;
pub mod forget;
pub mod frame;
pub mod lane;
pub mod limit;
pub mod link;
pub mod mark;
pub mod notes;
pub mod origin;
pub mod packet;
pub mod parse;
pub mod pipeline;
pub mod reject;
pub mod reply;
pub mod report;
#[cfg(not(target_arch = "bpf"))]
pub mod rows;
pub mod segment;
pub mod service;
pub mod tables;
#[cfg(any(test, feature = "testbed"))]
pub mod testbed;
pub mod verdict;
