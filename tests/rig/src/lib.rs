//! Which source the packet with a given number comes from. Pure: the kernel programs beside it run this for every
//! packet, tests run it on the host, and the measuring program uses its checksum.
#![no_std]

pub mod checksum;
pub mod sources;
pub mod syn;
