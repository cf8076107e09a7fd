//! What a segment can show about its sender.

/// What a segment can show about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Proof {
    /// The segment shows nothing.
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

    /// Whether nobody can forge the proof.
    #[inline(always)]
    pub(super) const fn is_real(self) -> bool {
        matches!(self, Self::Connection | Self::Cookie)
    }
}
