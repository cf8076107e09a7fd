//! Where the words of a TCP header are in the body of a reply.

use core::mem::offset_of;

use network_types::tcp::TcpHdr;

use super::WORD;

/// Both ports.
pub(crate) const PORTS: usize = offset_of!(TcpHdr, source) / WORD;
/// The sequence number.
pub(crate) const SEQUENCE: usize = offset_of!(TcpHdr, seq) / WORD;
/// The number that is acknowledged.
pub(crate) const ACKNOWLEDGED: usize = offset_of!(TcpHdr, ack_seq) / WORD;
/// The length of the header, the flags and the window.
pub(crate) const SHAPE: usize = offset_of!(TcpHdr, _bitfield_1) / WORD;
/// The checksum, and what is urgent.
pub(crate) const CHECKSUM: usize = offset_of!(TcpHdr, check) / WORD;
/// Where options begin, and words of a header without any.
pub(crate) const OPTIONS: usize = TcpHdr::LEN / WORD;
