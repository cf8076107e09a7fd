//! Indices of the words of a TCP header in the body of a reply.

use core::mem::offset_of;

use network_types::tcp::TcpHdr;

use super::WORD;

/// The word with both ports.
pub(crate) const PORTS: usize = offset_of!(TcpHdr, source) / WORD;
/// The word with the sequence number.
pub(crate) const SEQUENCE: usize = offset_of!(TcpHdr, seq) / WORD;
/// The word with the acknowledgement number.
pub(crate) const ACKNOWLEDGED: usize = offset_of!(TcpHdr, ack_seq) / WORD;
/// The word with the header length, the flags and the window.
pub(crate) const SHAPE: usize = offset_of!(TcpHdr, _bitfield_1) / WORD;
/// The word with the checksum and the urgent pointer.
pub(crate) const CHECKSUM: usize = offset_of!(TcpHdr, check) / WORD;
/// The first word of options, and the number of words of a header without options.
pub(crate) const OPTIONS: usize = TcpHdr::LEN / WORD;
