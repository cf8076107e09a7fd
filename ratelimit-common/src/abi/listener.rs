//! Where the running kernel keeps what it chooses a connection's window by.
//!
//! The answer to a SYN has to announce the window that the kernel will choose by itself when the acknowledgement comes. That depends on the listener:
//! its receive buffer, whether somebody has set its size, and a few options more. No helper returns these. The program reads them out of
//! the kernel's own structures, at offsets that the daemon finds in the kernel's type information and writes into the program before it is loaded.

/// The name of the static item that has the offsets.
pub const LISTENER: &str = "LISTENER";

/// Offsets in bytes into the kernel's `tcp_sock`, by [`Offset`].
pub type Offsets = [u32; Offset::COUNT];

/// Offsets of a kernel whose structures are not known: the program reads nothing.
pub const UNKNOWN: Offsets = [0; Offset::COUNT];

/// Indices into [`Offsets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Offset {
    /// The byte with the bits of buffers whose size somebody has set.
    Locks = 0,
    /// Not an offset: the bit of that byte for the receive buffer. 0: the structures are not known.
    ReceiveLock = 1,
    /// The size of the receive buffer, four bytes.
    Buffer = 2,
    /// The largest window, four bytes; 0 in a listener that nobody has given one (`TCP_WINDOW_CLAMP`).
    Clamp = 3,
    /// The largest segment, two bytes; 0 in a listener that nobody has given one (`TCP_MAXSEG`).
    Segment = 4,
    /// The part of the buffer that is for data, in 256ths, one byte; 0: this kernel has no such field (before 6.6), and the next two are used.
    Ratio = 5,
    /// The pointer to the network namespace.
    Namespace = 6,
    /// In the namespace: `tcp_adv_win_scale`, whose lowest byte is read.
    SpaceShift = 7,
}

impl Offset {
    /// How many offsets there are.
    pub const COUNT: usize = 8;
}
