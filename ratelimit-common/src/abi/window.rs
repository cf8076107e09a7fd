//! Limits that are counted in windows, and the state of windows for sources and users.

use crate::{
    abi_struct,
    limit::window::{Window, sliding::SUB_WINDOWS},
};

/// The most different windows of a policy.
pub const MAX_WINDOWS: usize = 64;
/// The most windows of one set of limits.
pub const SET_WINDOWS: usize = 4;

/// The algorithm of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum WindowKind {
    /// A fixed window, counted by `limit::window::fixed`.
    Fixed = 0,
    /// A sliding window, counted by `limit::window::sliding`.
    Sliding = 1,
    /// A weighted sliding window, counted by `limit::window::weighted`.
    Weighted = 2,
}

abi_struct! {
    /// One limit that is counted in a window.
    pub struct WindowLimit: 56 {
        /// The amount and length of the window.
        pub window: Window,
        /// The window's name, in the upper 32 bits: words written under another name have another meaning.
        pub name: u64,
        /// The number of a [`Meter`](super::Meter), or [`NO_METER`](super::limit::NO_METER) for an unused place.
        pub meter: u16,
        /// The number of a [`WindowKind`].
        pub kind: u16,
        /// 1 if packets above the limit pass and are counted apart.
        pub soft: u32,
    }
}

impl WindowLimit {
    /// Fills the unused places of a policy.
    pub const UNUSED: Self = Self { window: Window::UNUSED, name: 0, meter: u16::MAX, kind: 0, soft: 0 };
}

abi_struct! {
    /// What one source or user has used of one window.
    pub struct WindowState: 64 {
        /// Words as `limit::window` writes them: all of them for a sliding window, only the first for the others. Zero is an unused window.
        pub words: [u64; SUB_WINDOWS],
    }
}

impl WindowState {
    /// A window in which nothing is used.
    pub const FRESH: Self = Self { words: [0; SUB_WINDOWS] };
}
