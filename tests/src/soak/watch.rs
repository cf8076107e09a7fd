//! What receivers get, looked at many times a second for as long as a soak lasts.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{bound::Excess, policy::CALLER, sender::Signal};
use crate::{fleet::Bound, traffic::Sink};

/// Between two looks: often enough to see a burst, seldom enough to leave the machine to those who are watched.
const EVERY: Duration = Duration::from_millis(40);
/// From one look to the next when the whole machine, or the group of processes that this one is in, stood still.
const STILL: Duration = Duration::from_secs(4);

/// What one sender sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) name: &'static str,
    pub(super) host: usize,
    pub(super) from: &'static str,
    /// The number of the receiver.
    pub(super) sink: usize,
    pub(super) pps: u64,
    pub(super) due: Due,
}

/// How much of a stream has to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Every packet of the stream.
    All,
    /// No packet of the stream.
    None,
    /// What the bound of this name gives, to all streams of that bound together.
    Bounded(&'static str),
}

/// A limit that is watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) name: &'static str,
    pub(super) bound: Bound,
}

/// What was seen so far.
#[derive(Debug)]
pub(super) struct Seen {
    /// Packets that have arrived, by stream.
    pub(super) arrived: Vec<u64>,
    /// The largest excess above the bound, by limit.
    pub(super) excess: Vec<Excess>,
    /// Datagrams of the one who sends when all others rest.
    pub(super) markers: u64,
    /// How many looks there were so far.
    pub(super) looks: u64,
    /// How often nothing here ran for seconds, and for how long in all.
    pub(super) still: (u64, Duration),
}

/// The thread that looks at the receivers.
#[derive(Debug)]
pub(super) struct Watch {
    seen: Arc<Mutex<Seen>>,
    _thread: JoinHandle<()>,
}

impl Watch {
    pub(super) fn start(
        mut sinks: Vec<Sink>,
        streams: &'static [Stream],
        limits: &'static [Limit],
        signal: &Arc<Signal>,
    ) -> Self {
        let excess = limits.iter().map(|limit| Excess::new(limit.bound)).collect();
        let seen = Arc::new(Mutex::new(Seen {
            arrived: vec![0; streams.len()],
            excess,
            markers: 0,
            looks: 0,
            still: (0, Duration::ZERO),
        }));
        let (shared, signal) = (Arc::clone(&seen), Arc::clone(signal));
        let thread = thread::spawn(move || {
            let mut last = Instant::now();
            while !signal.is_over() {
                let counts: Vec<_> = sinks.iter_mut().map(Sink::counts).collect();
                let arrived = |stream: &Stream| counts[stream.sink]["udp"][stream.from].as_u64().unwrap_or(0);
                let arrived: Vec<u64> = streams.iter().map(arrived).collect();
                let passed = last.elapsed();
                last = Instant::now();
                let mut seen = shared.lock().unwrap_or_else(PoisonError::into_inner);
                for (limit, excess) in limits.iter().zip(&mut seen.excess) {
                    let of_limit = streams.iter().filter(|stream| stream.due == Due::Bounded(limit.name));
                    let times = of_limit.map(|stream| &counts[stream.sink]["arrived_ns"][stream.from]);
                    excess.add(times.filter_map(Value::as_array).flatten().filter_map(Value::as_i64));
                }
                seen.arrived = arrived;
                seen.markers = counts[0]["udp"][CALLER].as_u64().unwrap_or(0);
                seen.looks += 1;
                if passed > STILL {
                    seen.still = (seen.still.0 + 1, seen.still.1 + passed);
                }
                drop(seen);
                thread::sleep(EVERY);
            }
        });
        Self { seen, _thread: thread }
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins anew with a limit that was outside of its bound for a reason that has a name.
    pub(super) fn begin_again(&self, name: &str, limits: &[Limit]) {
        let mut seen = self.seen();
        for (_, excess) in limits.iter().zip(&mut seen.excess).filter(|(limit, _)| limit.name == name) {
            excess.begin_again();
        }
    }

    /// Waits for a look that began after now.
    pub(super) fn wait(&self) {
        let now = self.seen().looks;
        while self.seen().looks < now + 2 {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A port of a receiver.
pub(super) fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), crate::traffic::PORT)
}
