//! Where the running kernel keeps what it chooses a connection's window from.
//!
//! The answer to a SYN has to say what the kernel will choose by itself when the acknowledgement comes, and that depends on the listener:
//! its receive buffer, whether somebody has set it, and a few options more. No helper tells these. The program reads them out of
//! the kernel's own structures, at offsets that the daemon finds in the kernel's type information and puts in before it loads the program.

/// The name of the static item that has the offsets.
pub const LISTENER: &str = "LISTENER";

/// Offsets in bytes into the kernel's `tcp_sock`, by [`Offset`].
pub type Offsets = [u32; Offset::COUNT];

/// What is not known: the program reads nothing.
pub const UNKNOWN: Offsets = [0; Offset::COUNT];

/// Places in [`Offsets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Offset {
    /// The byte that says which buffers somebody has set.
    Locks = 0,
    /// Not an offset: the bit of that byte that stands for the receive buffer. 0: nothing is known.
    ReceiveLock = 1,
    /// The size of the receive buffer, four bytes.
    Buffer = 2,
    /// The largest window, four bytes; 0 in a listener that nobody has given one (`TCP_WINDOW_CLAMP`).
    Clamp = 3,
    /// The largest segment, two bytes; 0 in a listener that nobody has given one (`TCP_MAXSEG`).
    Segment = 4,
    /// How many 256ths of the buffer are for data, one byte; 0: this kernel has no such field (before 6.6), and the next two hold.
    Ratio = 5,
    /// The pointer to the network namespace.
    Namespace = 6,
    /// In the namespace: `tcp_adv_win_scale`, of which the lowest byte is read.
    SpaceShift = 7,
}

impl Offset {
    /// How many there are.
    pub const COUNT: usize = 8;
}
