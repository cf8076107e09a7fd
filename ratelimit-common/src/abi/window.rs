//! Limits that are counted in windows, and what sources and users have used of them.

use crate::{
    abi_struct,
    limit::window::{Window, sliding::SUB_WINDOWS},
};

/// Different windows that a policy can have.
pub const MAX_WINDOWS: usize = 64;
/// Windows that one set of limits can have.
pub const SET_WINDOWS: usize = 4;

/// How a window is counted.
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
        /// What tells words of this window from those of any other, in the upper half: they would mean something else there.
        pub name: u64,
        /// A [`Meter`](super::Meter), or [`NO_METER`](super::limit::NO_METER) for an unused place.
        pub meter: u16,
        /// The number of a [`WindowKind`].
        pub kind: u16,
        /// Whether what is above it passes, and is counted apart.
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
        /// As `limit::window` has them: all of them for a sliding window, the first for the others. Zero is fresh.
        pub words: [u64; SUB_WINDOWS],
    }
}

impl WindowState {
    /// A window in which nothing is used.
    pub const FRESH: Self = Self { words: [0; SUB_WINDOWS] };
}
