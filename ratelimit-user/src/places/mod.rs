//! Places for connections: how many there are, who has one, and who loses it when others come or when nothing comes of it.
//!
//! ```text
//! newcomer -> a place of its protocol's own -> a place of those that all protocols have in common
//!          -> the place of the connection of least use: unproven before proven, the longest idle first
//! ```
//! Nobody is let go in the midst of an answer, but for memory where all that hold it are. Deadlines are kept by a look every second at the front of the queue, not by a timer for
//! every connection.

mod crowd;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::AbortHandle;

use self::crowd::{Crowd, CrowdRank, Room};

/// Between two looks at who has been here for too long.
const LOOK: Duration = Duration::from_secs(1);
/// A newcomer that waits for a place looks again after this time at most.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Requests that are being answered when the place is lost: so many that nothing can begin any more.
const LOST: u32 = u32::MAX;

/// What holds for the connections of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceRules {
    /// Connections that always have room, whatever other protocols have.
    pub own: usize,
    /// Of all connections, those that may have shown and asked nothing yet.
    pub unproven: usize,
    /// How long a connection may take to become known.
    pub first: Duration,
    /// How long a connection that is known may ask nothing.
    pub idle: Duration,
    /// A place that is younger is nobody else's yet: a caller that is about to ask is not let go for the next one.
    pub grace: Duration,
}

/// How long a request may take from its first byte to its last.
pub const UNFINISHED: Duration = Duration::from_secs(10);
/// What unfinished requests of a protocol, and answers of gRPC that nobody takes, may take together, in bytes.
pub const MAX_UNFINISHED: usize = 32 * 1024 * 1024;

/// Places that no protocol has for its own.
#[derive(Debug, Default)]
pub struct Common(AtomicUsize);

impl Common {
    /// So many common places, all of them free.
    pub fn new(places: usize) -> Arc<Self> {
        Arc::new(Self(places.into()))
    }

    /// Takes one until it is dropped, if there is one.
    pub fn take(self: &Arc<Self>) -> Option<Taken> {
        self.is_taken().then(|| Taken(Arc::clone(self)))
    }

    fn is_taken(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1)).is_ok()
    }

    fn give_back(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One of those that are in common, until it is dropped.
#[derive(Debug)]
pub struct Taken(Arc<Common>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// The places of one protocol.
#[derive(Debug)]
pub struct ConnectionPlaces {
    began: Instant,
    crowd: Mutex<Crowd>,
}

/// A place that is taken, until it is dropped.
#[derive(Debug)]
pub struct Place(Arc<Guest>);

/// A connection that has a place. The connection says here what it is doing.
#[derive(Debug)]
pub struct Guest {
    id: u64,
    places: Arc<ConnectionPlaces>,
    entered_ms: u64,
    /// Requests that are being answered, or [`LOST`].
    busy: AtomicU32,
    is_proven: AtomicBool,
    /// When the last answer of a known guest was ready.
    answered_ms: AtomicU64,
    task: OnceLock<AbortHandle>,
}

/// Until an answer is ready. Meanwhile the place is not lost.
#[derive(Debug)]
pub struct Busy(Arc<Guest>);

impl ConnectionPlaces {
    /// Places under these rules; `common` is where to borrow more.
    pub fn new(rules: PlaceRules, common: Option<Arc<Common>>) -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), crowd: Mutex::new(Crowd::new(rules, common)) })
    }

    /// Takes a place, from who is of least use if there is no other. Waits only while nobody can be let go.
    pub async fn enter(self: &Arc<Self>) -> Place {
        loop {
            let wait = match self.room() {
                Room::Free(guest) => return Place(guest),
                Room::Made(guest) => {
                    // A connection of this thread that has lost its place closes itself now.
                    tokio::task::yield_now().await;
                    return Place(guest);
                }
                Room::After(wait) => wait,
            };
            // A connection that was in the way may be proven a moment later.
            tokio::time::sleep(wait.min(LOOK_AGAIN)).await;
        }
    }

    fn room(self: &Arc<Self>) -> Room {
        let now_ms = self.now_ms();
        let guest = |id| {
            Arc::new(Guest {
                id,
                places: Arc::clone(self),
                entered_ms: now_ms,
                busy: AtomicU32::new(0),
                is_proven: AtomicBool::new(false),
                answered_ms: AtomicU64::new(0),
                task: OnceLock::new(),
            })
        };
        self.crowd().admit(now_ms, guest)
    }

    /// Lets those go whose time is up, for ever.
    pub async fn look_after(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.crowd().let_go(self.now_ms());
        }
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn crowd(&self) -> MutexGuard<'_, Crowd> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The connection that has the place.
    pub fn guest(&self) -> &Arc<Guest> {
        &self.0
    }

    /// Runs a connection that has the place until it ends, or until the place is lost.
    pub fn host(self, connection: impl Future<Output = ()> + Send + 'static) {
        let guest = Arc::clone(&self.0);
        // Moved once: a future within a future would take its room twice.
        let connection = Box::pin(connection);
        let task = tokio::spawn(async move {
            connection.await;
            drop(self);
        });
        let task = guest.task.get_or_init(|| task.abort_handle());
        if guest.busy.load(Ordering::SeqCst) == LOST {
            task.abort();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.places.crowd().remove(self.0.id);
    }
}

impl Guest {
    /// A connection for tests, where it does not matter which.
    #[cfg(test)]
    pub(super) fn anybody() -> Arc<Self> {
        let minute = Duration::from_secs(60);
        let rules = PlaceRules { own: 1, unproven: 1, first: minute, idle: minute, grace: minute };
        match ConnectionPlaces::new(rules, None).room() {
            Room::Free(guest) | Room::Made(guest) => guest,
            Room::After(wait) => panic!("no place within {wait:?}"),
        }
    }

    /// Begins an answer; none if the place is lost, and the connection about to end.
    pub fn begin(self: &Arc<Self>) -> Option<Busy> {
        let more = |busy| (busy != LOST).then(|| busy + 1);
        let begun = self.busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        begun.is_ok().then(|| Busy(Arc::clone(self)))
    }

    /// Says that it has shown what it must, and asked something.
    pub fn is_proven_now(&self) {
        if !self.is_proven.swap(true, Ordering::Relaxed) {
            let now_ms = self.places.now_ms();
            self.answered_ms.store(now_ms, Ordering::Relaxed);
            self.places.crowd().knows(self.id, now_ms);
        }
    }

    /// Says how many bytes it has sent of a request that is not all there, or leaves in memory by not taking its answers. If `within` is given,
    /// the rest has to come or to be taken within that time from now; else by when it had to before.
    pub fn holds(&self, bytes: usize, within: Option<Duration>) {
        let due_ms = within.map(|time| self.places.now_ms() + time.as_millis() as u64);
        self.places.crowd().holds(self.id, bytes, due_ms);
    }

    /// Where the connection is in the queue of those that lose their places.
    fn rank(&self, now_ms: u64) -> CrowdRank {
        let is_proven = self.is_proven.load(Ordering::Relaxed);
        let since_ms = match is_proven {
            true if self.busy.load(Ordering::SeqCst) > 0 => now_ms,
            true => self.answered_ms.load(Ordering::Relaxed),
            // The time of an unproven connection does not begin again, whatever it sends.
            false => self.entered_ms,
        };
        CrowdRank { is_proven, since_ms, id: self.id }
    }

    /// Takes the place away, unless something is being answered.
    fn is_let_go(&self) -> bool {
        let lost = self.busy.compare_exchange(0, LOST, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if lost {
            self.end();
        }
        lost
    }

    /// Takes the place away, whatever is being answered.
    fn cut_off(&self) {
        self.busy.store(LOST, Ordering::SeqCst);
        self.end();
    }

    fn end(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let guest = &self.0;
        if guest.is_proven.load(Ordering::Relaxed) {
            guest.answered_ms.store(guest.places.now_ms(), Ordering::Relaxed);
        }
        // A place that was lost meanwhile stays lost.
        let fewer = |busy| (busy != LOST).then(|| busy - 1);
        let _lost = guest.busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer);
    }
}

#[cfg(test)]
mod tests;
