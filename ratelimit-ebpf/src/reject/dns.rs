//! The truncated response to a query of DNS, upon which a resolver asks again over TCP (RFC 1035 4.1.1, RFC 7766 5).
//!
//! The response repeats the question and has no records, so it is never longer than the query.

use network_types::{
    ip::{Ipv4Hdr, Ipv6Hdr},
    udp::UdpHdr,
};

use crate::{
    frame::{Frame, MAX_OFFSET},
    notes::Notes,
    packet::{Address, Family, Packet},
    reply::{Check, Pen, ReplyFrame, Route, UDP, WORD},
};

/// Bytes of the header of a DNS message.
const HEADER: usize = 12;
/// Bytes of the headers that are written anew.
const HEADERS: usize = UdpHdr::LEN + HEADER;

/// Bits of the second word half of the header: response, or an operation other than a query.
const NO_QUERY: u32 = 0xf800;
const RESPONSE: u32 = 0x8000;
const TRUNCATED: u32 = 0x0200;
const RECURSION_DESIRED: u32 = 0x0100;
const RECURSION_AVAILABLE: u32 = 0x0080;
const CHECKING_DISABLED: u32 = 0x0010;
/// One question and no answers.
const ONE_QUESTION: u32 = 1 << 16;

/// The most bytes of a name, and of the type and class behind it (RFC 1035 3.1).
const LONGEST_NAME: usize = 255;
const TYPE_AND_CLASS: usize = 4;
const LONGEST_QUESTION: usize = LONGEST_NAME + TYPE_AND_CLASS;
/// The most labels of a name: each takes two bytes at least, and the last one takes one.
const LABELS: usize = LONGEST_NAME / 2 + 1;
/// The longest label; a larger number is a pointer to another name, which a query does not need.
const LONGEST_LABEL: usize = 63;

/// The note with the offset that a walk over the question has reached. Others are taken when the reply is built.
const AT: usize = 0;
/// The note with the sum of the words before it.
const SUM: usize = 1;
/// The note with the offset of the last word of the question.
const LAST: usize = 2;

/// Builds the response to a query. `None` for what is not one question, whole and in one buffer, behind plain headers.
#[inline(always)]
pub(super) fn build<N: Notes>(
    notes: &N,
    frame: &Frame<'_>,
    packet: &Packet,
    destination: Address,
) -> Option<ReplyFrame> {
    let header = match packet.source.family {
        Family::V4 => Ipv4Hdr::LEN,
        Family::V6 => Ipv6Hdr::LEN,
    };
    if packet.transport_at != packet.network_at + header {
        return None;
    }
    let query = frame.view::<HEADERS>(packet.transport_at)?;
    let (flags, id) = (query.u32_be::<8>() & 0xffff, query.u32_be::<8>() & 0xffff_0000);
    if flags & NO_QUERY != 0 || query.u32_be::<12>() != ONE_QUESTION || query.u16_be::<16>() != 0 {
        return None;
    }
    let question_at = packet.transport_at + HEADERS;
    let question = question_len(notes, frame, question_at)?;
    // What stands behind the datagram is padding of the frame.
    let len = HEADERS + question;
    if len > packet.transport_len || len > usize::from(query.u16_be::<4>()) {
        return None;
    }
    let recursion = flags & RECURSION_DESIRED;
    let available = if recursion == 0 { 0 } else { RECURSION_AVAILABLE };
    let flags = RESPONSE | TRUNCATED | recursion | available | flags & CHECKING_DISABLED;
    let mut response = Pen::new(notes);
    // The ports change places.
    response.body(0, query.u32_ne::<0>().rotate_left(16));
    response.body(1, ((len as u32) << 16).to_be());
    response.body(2, (id | flags).to_be());
    response.body(3, ONE_QUESTION.to_be());
    response.body(4, 0);
    response.keep(question as u32, sum(notes, frame, question_at, question)?);
    let route = Route {
        source: destination,
        destination: packet.source,
        protocol: UDP,
        network_at: packet.network_at,
    };
    Some(ReplyFrame::with_body(response, (HEADERS / WORD) as u32, Check::Lower(1), &route))
}

/// Bytes of the question at an offset; `None` if it is broken.
#[inline(always)]
fn question_len<N: Notes>(notes: &N, frame: &Frame<'_>, question_at: usize) -> Option<usize> {
    notes.set_note(AT, question_at as u64);
    let mut labels = 0;
    while labels < LABELS {
        let at = notes.note(AT) as usize & MAX_OFFSET;
        // Behind the last label come type and class, and behind each other one at least as much.
        let label = frame.view::<{ 1 + TYPE_AND_CLASS }>(at)?.u8::<0>() as usize;
        if label == 0 {
            let len = at + 1 + TYPE_AND_CLASS - question_at;
            return (len <= LONGEST_QUESTION).then_some(len);
        }
        if label > LONGEST_LABEL {
            return None;
        }
        notes.set_note(AT, (at + 1 + label) as u64);
        labels += 1;
    }
    None
}

/// The sum of the words of `len` bytes at an offset, in memory order.
#[inline(always)]
fn sum<N: Notes>(notes: &N, frame: &Frame<'_>, from: usize, len: usize) -> Option<u64> {
    notes.set_note(AT, from as u64);
    notes.set_note(SUM, 0);
    // From a note, or the compiler would derive it from the walk over the name and leave a check out that the verifier needs.
    notes.set_note(LAST, (from + len - WORD) as u64);
    let last = notes.note(LAST) as usize & MAX_OFFSET;
    let mut words = 0;
    while words <= LONGEST_QUESTION / WORD {
        let at = notes.note(AT) as usize & MAX_OFFSET;
        if at > last {
            break;
        }
        notes.set_note(SUM, notes.note(SUM) + u64::from(frame.view::<WORD>(at)?.u32_ne::<0>()));
        notes.set_note(AT, (at + WORD) as u64);
        words += 1;
    }
    // What is left, less than a word, is the end of the last word.
    let left = last.wrapping_sub(notes.note(AT) as usize) % WORD;
    let word = u64::from(frame.view::<WORD>(last)?.u32_be::<0>());
    let rest = (word << (8 * (WORD - left))) as u32;
    Some(notes.note(SUM) + u64::from(rest.to_be()))
}
