//! Gives up connections of which nothing will come: heads that never get complete, answers that nobody reads, peers that are gone.
//!
//! Every connection is looked at every few seconds, and has a few counters, instead of a timer for every request.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::serve::listener::ClientStream;

/// The time between two looks. An incomplete head, or a caller that reads nothing, is given at least one whole interval.
const LOOK: Duration = Duration::from_secs(5);
/// Looks until a connection must have asked something: 30 s.
const SILENT_LOOKS: u32 = 6;
/// Looks that a connection which has asked something may be idle: 10 minutes, above what clients' pools keep connections for.
const IDLE_LOOKS: u32 = 120;

/// What has happened on a connection.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Requests whose head was complete.
    requests: AtomicU32,
    /// How often bytes went out.
    writes: AtomicU32,
    /// Whether bytes came in since the last head was complete.
    began: AtomicBool,
    /// Whether a request is being answered.
    busy: AtomicBool,
    /// The number of answers that are being sent piece by piece.
    holds: AtomicU32,
    /// Whether the other end takes no more bytes.
    stuck: AtomicBool,
}

/// What was seen at the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PulseReading {
    requests: u32,
    writes: u32,
    began: bool,
    stuck: bool,
    /// Looks since the last request.
    looks: u32,
}

/// Marks a connection as busy while an answer of unknown length is being produced; dropping it ends the mark.
pub(super) struct OpenAnswer(Arc<Pulse>);

/// Marks a connection as busy while a request is answered; dropping it ends the mark.
pub(super) struct RequestUnderWay<'p>(&'p Pulse);

impl Pulse {
    /// Records that the head of a request is complete.
    pub(super) fn begin(&self) -> RequestUnderWay<'_> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.began.store(false, Ordering::Relaxed);
        self.busy.store(true, Ordering::Relaxed);
        RequestUnderWay(self)
    }

    /// Records an answer that is sent piece by piece: the connection counts as in use until the returned value is dropped, unless nobody reads.
    pub(super) fn hold(self: &Arc<Self>) -> OpenAnswer {
        self.holds.fetch_add(1, Ordering::Relaxed);
        OpenAnswer(Arc::clone(self))
    }

    /// Waits while the other end takes no bytes. Without this, the server would go on reading and keep every answer in memory.
    pub(super) async fn until_answers_are_read(&self) {
        std::future::poll_fn(|_| match self.stuck.load(Ordering::Relaxed) {
            // The next write wakes us: reading and writing are one task.
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Returns when the connection is to be given up.
    pub(super) async fn until_it_stops(&self) {
        let mut seen = PulseReading::default();
        loop {
            tokio::time::sleep(LOOK).await;
            match self.look(seen) {
                Some(now) => seen = now,
                None => return,
            }
        }
    }

    /// Returns what is seen now; `None` if the connection is to be given up.
    fn look(&self, before: PulseReading) -> Option<PulseReading> {
        let now = PulseReading {
            requests: self.requests.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            began: self.began.load(Ordering::Relaxed),
            stuck: self.stuck.load(Ordering::Relaxed),
            looks: 0,
        };
        let unread = before.stuck && now.stuck && before.writes == now.writes;
        if self.busy.load(Ordering::Relaxed) || self.holds.load(Ordering::Relaxed) > 0 {
            // Bodies and held answers have time limits of their own.
            return (!unread).then_some(now);
        }
        let asked = before.requests != now.requests;
        let slow = before.began && now.began && !asked;
        let looks = if asked { 0 } else { before.looks + 1 };
        let patience = if now.requests == 0 { SILENT_LOOKS } else { IDLE_LOOKS };
        (!unread && !slow && looks < patience).then_some(PulseReading { looks, ..now })
    }
}

impl Drop for OpenAnswer {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for RequestUnderWay<'_> {
    fn drop(&mut self) {
        // Bytes that came in meanwhile were the body, and not the next head.
        self.0.began.store(false, Ordering::Relaxed);
        self.0.busy.store(false, Ordering::Relaxed);
    }
}

/// A client connection that records in its pulse when bytes were read or written.
pub(super) struct Watched {
    stream: ClientStream,
    pulse: Arc<Pulse>,
}

impl Watched {
    /// Watches a connection.
    pub(super) fn new(stream: ClientStream, pulse: Arc<Pulse>) -> Self {
        Self { stream, pulse }
    }

    fn wrote(&self, result: Poll<io::Result<usize>>, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        if result.is_ready() {
            self.pulse.writes.fetch_add(1, Ordering::Relaxed);
        }
        let was_stuck = self.pulse.stuck.load(Ordering::Relaxed);
        self.pulse.stuck.store(result.is_pending(), Ordering::Relaxed);
        if was_stuck && result.is_ready() {
            cx.waker().wake_by_ref();
        }
        result
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.pulse.began.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(result, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(result, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many looks a connection lasts on which `each` happens between two looks.
    fn lasts(each: impl Fn(&Pulse)) -> usize {
        let pulse = Pulse::default();
        let mut seen = PulseReading::default();
        for looks in 1..1_000 {
            each(&pulse);
            match pulse.look(seen) {
                Some(now) => seen = now,
                None => return looks,
            }
        }
        1_000
    }

    #[test]
    fn a_head_that_comes_in_drops_ends_its_connection_at_the_second_look() {
        assert_eq!(lasts(|pulse| pulse.began.store(true, Ordering::Relaxed)), 2);
    }

    #[test]
    fn a_connection_on_which_nothing_is_asked_lasts_half_a_minute() {
        assert_eq!(lasts(|_| {}), SILENT_LOOKS as usize);
    }

    #[test]
    fn a_connection_that_has_asked_something_stays_for_minutes() {
        let first = std::cell::Cell::new(true);
        let once = |pulse: &Pulse| {
            if first.take() {
                drop(pulse.begin());
            }
        };
        assert_eq!(lasts(once), 1 + IDLE_LOOKS as usize);
    }

    #[test]
    fn a_body_that_comes_behind_its_head_is_no_head_that_is_slow() {
        let first = std::cell::Cell::new(true);
        let posted = |pulse: &Pulse| {
            if first.take() {
                let busy = pulse.begin();
                pulse.began.store(true, Ordering::Relaxed);
                drop(busy);
            }
        };
        assert_eq!(lasts(posted), 1 + IDLE_LOOKS as usize);
    }

    #[test]
    fn a_connection_in_use_stays() {
        assert_eq!(lasts(|pulse| drop(pulse.begin())), 1_000);
    }

    #[test]
    fn an_answer_that_is_held_ends_no_connection() {
        assert_eq!(lasts(|pulse| std::mem::forget(pulse.begin())), 1_000);
    }

    #[test]
    fn an_answer_that_goes_on_piece_by_piece_keeps_its_connection_while_somebody_reads() {
        let pulse = Arc::new(Pulse::default());
        drop(pulse.begin());
        let held = pulse.hold();
        let mut seen = PulseReading::default();
        for _ in 0..1_000 {
            seen = pulse.look(seen).expect("it is in use");
        }
        pulse.stuck.store(true, Ordering::Relaxed);
        seen = pulse.look(seen).expect("it may read on");
        assert_eq!(pulse.look(seen), None, "it reads nothing");
        pulse.stuck.store(false, Ordering::Relaxed);
        drop(held);
        assert_eq!(
            pulse.look(PulseReading { looks: IDLE_LOOKS, requests: 1, ..PulseReading::default() }),
            None,
            "it is idle again"
        );
    }

    #[test]
    fn a_caller_that_reads_nothing_loses_its_connection_at_the_second_look() {
        let unread = |pulse: &Pulse| {
            pulse.requests.fetch_add(1, Ordering::Relaxed);
            pulse.stuck.store(true, Ordering::Relaxed);
        };
        assert_eq!(lasts(unread), 2);
        let slow = |pulse: &Pulse| {
            unread(pulse);
            pulse.writes.fetch_add(1, Ordering::Relaxed);
        };
        assert_eq!(lasts(slow), 1_000);
    }
}
