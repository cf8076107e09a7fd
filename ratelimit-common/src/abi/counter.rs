//! What was counted: one entry per reason and CPU.

use crate::abi_struct;

abi_struct! {
    /// Frames that ended with one reason on one CPU. Only that CPU writes it, so plain additions do.
    pub struct Counter: 16 {
        /// Frames.
        pub packets: u64,
        /// Bytes of those frames, from the Ethernet header on.
        pub bytes: u64,
    }
}
