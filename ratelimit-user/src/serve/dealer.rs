//! Deals out connections to threads: each goes to the thread that has the fewest of its protocol.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::mpsc::{self, Receiver, Sender};

use super::protocol::ServedProtocol;

/// The most connections that wait for a thread. More wait in the kernel, where no time runs for them: in a queue here a connection would be unproven for as
/// long as its thread has other things to do.
const WAITING: usize = 16;

/// Connections of one thread, by protocol.
type ConnectionCounts = Arc<[AtomicUsize; ServedProtocol::COUNT]>;

/// Deals out connections, or anything else that threads have.
#[derive(Debug)]
pub(super) struct Dealer<T> {
    hands: Vec<(ConnectionCounts, Sender<(T, InHand)>)>,
    /// The thread that is next among those with equally few.
    next: AtomicUsize,
}

/// Counts a connection for its thread until it is dropped.
#[derive(Debug)]
pub(super) struct InHand {
    counts: ConnectionCounts,
    protocol: ServedProtocol,
}

impl<T> Default for Dealer<T> {
    fn default() -> Self {
        Self { hands: Vec::new(), next: AtomicUsize::new(0) }
    }
}

impl<T> Dealer<T> {
    /// Adds a thread, and returns what it is dealt.
    pub(super) fn add(&mut self) -> Receiver<(T, InHand)> {
        let (hand, dealt) = mpsc::channel(WAITING);
        self.hands.push((ConnectionCounts::default(), hand));
        dealt
    }

    /// Deals a connection to the thread that has the fewest of its protocol, and of those to the one that has the fewest of all protocols. Waits while as
    /// many wait for that thread as may.
    pub(super) async fn deal(&self, protocol: ServedProtocol, connection: T) {
        let few = |(counts, _): &&(ConnectionCounts, _)| {
            let all = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>();
            (counts[protocol as usize].load(Ordering::Relaxed), all)
        };
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.hands.len().max(1);
        let (before, after) = self.hands.split_at(next);
        let Some((counts, hand)) = after.iter().chain(before).min_by_key(few) else { return };
        counts[protocol as usize].fetch_add(1, Ordering::Relaxed);
        // A thread that has ended takes nothing; the service ends with it.
        let _gone = hand.send((connection, InHand { counts: Arc::clone(counts), protocol })).await;
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.counts[self.protocol as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::{ServedProtocol::*, *};

    /// A dealer with threads, and what each has been dealt.
    fn dealer(threads: usize) -> (Dealer<usize>, Vec<Receiver<(usize, InHand)>>) {
        let mut dealer = Dealer::default();
        let dealt = (0..threads).map(|_| dealer.add()).collect();
        (dealer, dealt)
    }

    /// Deals so many connections, and returns how many were dealt without waiting.
    fn deal(dealer: &Dealer<usize>, protocol: ServedProtocol, count: usize) -> usize {
        (0..count).take_while(|n| dealer.deal(protocol, *n).now_or_never().is_some()).count()
    }

    fn lengths(dealt: &[Receiver<(usize, InHand)>]) -> Vec<usize> {
        dealt.iter().map(Receiver::len).collect()
    }

    #[test]
    fn every_thread_has_as_many_connections_of_a_protocol() {
        let (dealer, dealt) = dealer(3);
        deal(&dealer, Grpc, 2);
        assert_eq!(lengths(&dealt), [1, 1, 0]);
        deal(&dealer, Http, 5);
        let mut all = lengths(&dealt);
        assert_eq!(all[2], 2, "the thread without the others has its share");
        all.sort_unstable();
        assert_eq!(all, [2, 2, 3]);
    }

    #[test]
    fn a_thread_whose_connections_end_is_dealt_the_next() {
        let (dealer, mut dealt) = dealer(3);
        deal(&dealer, Resp, 30);
        assert_eq!(lengths(&dealt), [10, 10, 10]);
        for _ in 0..4 {
            dealt[1].try_recv().unwrap();
        }
        deal(&dealer, Resp, 4);
        assert_eq!(lengths(&dealt), [10, 10, 10]);
    }

    #[test]
    fn connections_that_end_at_once_go_round() {
        let (dealer, mut dealt) = dealer(3);
        for _ in 0..4 {
            for thread in &mut dealt {
                deal(&dealer, Http, 1);
                assert!(thread.try_recv().is_ok());
            }
        }
    }

    #[test]
    fn connections_wait_in_the_kernel_for_a_busy_thread() {
        let (dealer, mut dealt) = dealer(2);
        assert_eq!(deal(&dealer, Http, 100), 2 * WAITING);
        dealt[0].try_recv().unwrap();
        assert_eq!(deal(&dealer, Http, 100), 1);
    }
}
