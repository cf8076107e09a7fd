//! What a segment can show about its sender.

use ratelimit_common::abi::Reason;

/// What a segment can show about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Proof {
    /// The segment is for a listener of this host, and shows nothing.
    Nothing = 0,
    /// A connection is being made: there was a SYN with the same addresses and ports, and both may be forged.
    Handshake = 1,
    /// The segment belongs to an existing connection.
    Connection = 2,
    /// The segment carries a cookie of this host, and opens a connection.
    Cookie = 3,
}

impl Proof {
    /// The proof of this number.
    #[inline(always)]
    pub const fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Handshake,
            2 => Self::Connection,
            3 => Self::Cookie,
            _ => Self::Nothing,
        }
    }

    /// What a segment shows that is for no socket of this host: the host forwards it, translates its destination, or answers with a reset. Where it was
    /// asked because SYNs are answered with cookies, it counts as part of a handshake and the limits decide; a limit that refused it still does.
    #[inline(always)]
    pub fn elsewhere(otherwise: Reason) -> Self {
        if otherwise == Reason::CookieInvalid { Self::Handshake } else { Self::Nothing }
    }

    /// Whether nobody can forge the proof.
    #[inline(always)]
    pub(super) const fn is_real(self) -> bool {
        matches!(self, Self::Connection | Self::Cookie)
    }
}
