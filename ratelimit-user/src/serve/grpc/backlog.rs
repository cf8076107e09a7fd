//! The memory that the calls of a connection take: answers that their caller has not taken yet, and messages that have not arrived completely.
//!
//! ```text
//! answer -> h2 holds it, with the share in the field that ends the answer -> written, or the connection is gone: the share is given back
//! ```
//! h2 does not tell how many answers wait in it, for a window or for the socket. It drops the fields of an answer once they are written, and a
//! share of the backlog lives in one of them. When everything that could be written is written, the connection tells its place how many bytes are left.
//! The sum over all connections has a bound; beyond it, the connection that has taken nothing for longest loses its place.

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::HeaderValue;

use crate::places::{Common, Guest, Taken};

/// Bytes that h2 and its tables take for a call, beside the message: measured with 200 000 calls (`docs/sizing.md`).
pub const CALL: usize = 2_560;
/// The value of the field that ends the answer to a call that went well.
pub const WENT_WELL: &str = "0";
/// How long a caller may take nothing of the answers that wait for it, and send nothing of a message that it has begun.
const PATIENCE: Duration = Duration::from_secs(60);
/// Open streams that each connection may have, however many others have.
const OWN_STREAMS: usize = 4;
/// Further open streams of all connections together. A stream takes about 4 KB.
pub const COMMON_STREAMS: usize = 8_192;

/// The memory that the calls of one connection take.
#[derive(Debug)]
pub struct Backlog {
    guest: Arc<Guest>,
    bytes: AtomicUsize,
    /// Whether a share has become smaller since the place was last told of the bytes.
    is_moving: AtomicBool,
    /// The bytes that the place was last told of.
    told: Mutex<usize>,
    /// Whether a call of this connection has gone well.
    has_ended_one: AtomicBool,
    own_streams: Arc<Common>,
    common_streams: Arc<Common>,
}

/// A part of a backlog, until it is dropped.
#[derive(Debug)]
pub struct BacklogShare {
    backlog: Arc<Backlog>,
    bytes: usize,
}

/// The value of a field that has a share in it.
struct MarkedText {
    text: Cow<'static, str>,
    _share: BacklogShare,
}

impl AsRef<[u8]> for MarkedText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Backlog {
    /// An empty backlog of the connection that has this place.
    pub fn new(guest: Arc<Guest>, common_streams: Arc<Common>) -> Arc<Self> {
        Arc::new(Self {
            guest,
            bytes: AtomicUsize::new(0),
            is_moving: AtomicBool::new(false),
            told: Mutex::new(0),
            has_ended_one: AtomicBool::new(false),
            own_streams: Common::new(OWN_STREAMS),
            common_streams,
        })
    }

    /// Adds a share of `bytes` bytes.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> BacklogShare {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        BacklogShare { backlog: Arc::clone(self), bytes }
    }

    /// Returns the value of the field that ends an answer with a message of `bytes` bytes. The call has its share until the field is written.
    ///
    /// The first answer of a connection that went well has no share: HPACK keeps its value in a table for as long as the connection lasts, and equal values
    /// after it are written as a reference to it. Values with a share must not get into the table, so they are marked as sensitive, which means that to HPACK.
    pub fn ending(self: &Arc<Self>, text: impl Into<Cow<'static, str>>, bytes: usize) -> HeaderValue {
        let text = text.into();
        if text == WENT_WELL && !self.has_ended_one.swap(true, Ordering::Relaxed) {
            return HeaderValue::from_static(WENT_WELL);
        }
        let marked = Bytes::from_owner(MarkedText { text, _share: self.hold(CALL + bytes) });
        // Cannot fail: numbers and names of methods are valid values of a field.
        let mut value = HeaderValue::from_maybe_shared(marked).unwrap_or(HeaderValue::from_static(""));
        value.set_sensitive(true);
        value
    }

    /// Takes a place for a stream, which takes memory for as long as it is open; none if all places are taken.
    pub fn open_stream(&self) -> Option<Taken> {
        self.own_streams.take().or_else(|| self.common_streams.take())
    }

    /// Tells the place of the connection how many bytes there are.
    pub fn tell(&self) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = self.bytes.load(Ordering::Relaxed);
        let is_moving = self.is_moving.swap(false, Ordering::Relaxed);
        if bytes == *told && (bytes == 0 || !is_moving) {
            return;
        }
        let begins = *told == 0 || is_moving;
        *told = bytes;
        self.guest.holds(bytes, begins.then_some(PATIENCE));
    }
}

impl BacklogShare {
    /// Changes the size of the share.
    pub fn resize(&mut self, bytes: usize) {
        self.backlog.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.backlog.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if bytes < self.bytes {
            self.backlog.is_moving.store(true, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// Changes the size of the share, and tells the place at once, because the task of the connection may have nothing to do.
    pub fn resize_and_tell(&mut self, bytes: usize) {
        if bytes != self.bytes {
            self.resize(bytes);
            self.backlog.tell();
        }
    }
}

impl Drop for BacklogShare {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backlog() -> Arc<Backlog> {
        Backlog::new(Guest::anybody(), Common::new(1))
    }

    fn bytes(backlog: &Backlog) -> usize {
        backlog.bytes.load(Ordering::Relaxed)
    }

    #[test]
    fn an_answer_has_its_share_until_the_field_that_ends_it_is_dropped() {
        let backlog = backlog();
        let refused = backlog.ending("5", 0);
        assert_eq!((refused.as_bytes(), bytes(&backlog)), (&b"5"[..], CALL));
        drop(refused);
        let first = backlog.ending("0", 100);
        assert!(!first.is_sensitive() && bytes(&backlog) == 0, "the table of HPACK keeps the first");
        let (second, third) = (backlog.ending("0", 100), backlog.ending("8", 7));
        assert_eq!((second.as_bytes(), third.as_bytes()), (&b"0"[..], &b"8"[..]));
        assert!(second.is_sensitive() && third.is_sensitive());
        assert_eq!(bytes(&backlog), 2 * CALL + 107);
        let copy = second.clone();
        drop(second);
        assert_eq!(bytes(&backlog), 2 * CALL + 107, "a copy is the same answer");
        drop(copy);
        drop(third);
        assert_eq!(bytes(&backlog), 0);
    }

    #[test]
    fn a_share_is_as_large_as_what_it_stands_for() {
        let backlog = backlog();
        let mut share = backlog.hold(0);
        for size in [5, 3, 0, 9] {
            share.resize(size);
            assert_eq!(bytes(&backlog), size);
        }
        drop(share);
        assert_eq!(bytes(&backlog), 0);
    }

    #[test]
    fn a_connection_has_streams_of_its_own_and_then_those_that_all_have_in_common() {
        let (one, common) = (backlog(), Common::new(1));
        let other = Backlog::new(Guest::anybody(), Arc::clone(&common));
        let mut taken: Vec<_> = (0..OWN_STREAMS + 1).filter_map(|_| other.open_stream()).collect();
        assert_eq!(taken.len(), OWN_STREAMS + 1);
        assert!(other.open_stream().is_none());
        let third = Backlog::new(Guest::anybody(), common);
        let own: Vec<_> = std::iter::from_fn(|| third.open_stream()).collect();
        assert_eq!(own.len(), OWN_STREAMS, "its own are left to it");
        taken.pop();
        assert!(third.open_stream().is_some(), "what is given back is for everybody");
        assert!(one.open_stream().is_some());
    }
}
