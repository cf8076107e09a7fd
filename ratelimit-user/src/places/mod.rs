//! Places for connections: how many there are, which connections have one, and which lose theirs to others or by a timeout.
//!
//! ```text
//! newcomer -> a place of its protocol's own -> a place of those that all protocols have in common
//!          -> the place of the connection of least use: unproven before proven, the longest idle first
//! ```
//! No connection is closed while it is being answered, except for memory when all that hold memory are being answered. Deadlines are checked once a
//! second at the front of the queue, without a timer for every connection.

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

/// Time between two checks for connections whose time is up.
const LOOK: Duration = Duration::from_secs(1);
/// The longest time after which a waiting connection looks for a place again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The number of answers in progress that stands for a lost place: so large that no answer can begin.
const LOST: u32 = u32::MAX;

/// The rules for the connections of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceRules {
    /// Places of the protocol's own, which other protocols cannot take.
    pub own: usize,
    /// The most unproven connections among all.
    pub unproven: usize,
    /// How long a connection may stay unproven.
    pub first: Duration,
    /// How long a proven connection may be idle.
    pub idle: Duration,
    /// A connection younger than this keeps its place: a caller that is about to ask does not lose it to the next one.
    pub grace: Duration,
}

/// How long a request may take from its first byte to its last.
pub const UNFINISHED: Duration = Duration::from_secs(10);
/// The most bytes of unfinished requests of a protocol, together with gRPC answers that clients do not take.
pub const MAX_UNFINISHED: usize = 32 * 1024 * 1024;

/// Places that all protocols share.
#[derive(Debug, Default)]
pub struct Common(AtomicUsize);

impl Common {
    /// A number of common places, all of them free.
    pub fn new(places: usize) -> Arc<Self> {
        Arc::new(Self(places.into()))
    }

    /// Takes a common place until the result is dropped; `None` if there is none.
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

/// A common place that is taken until this value is dropped.
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

/// A place that is taken until this value is dropped.
#[derive(Debug)]
pub struct Place(Arc<Guest>);

/// A connection that has a place, and what it is doing.
#[derive(Debug)]
pub struct Guest {
    id: u64,
    places: Arc<ConnectionPlaces>,
    entered_ms: u64,
    /// The number of answers in progress, or [`LOST`].
    busy: AtomicU32,
    is_proven: AtomicBool,
    /// When the last answer of a proven connection was ready, in milliseconds.
    answered_ms: AtomicU64,
    task: OnceLock<AbortHandle>,
}

/// An answer in progress, until this value is dropped. Meanwhile the connection keeps its place.
#[derive(Debug)]
pub struct Busy(Arc<Guest>);

impl ConnectionPlaces {
    /// Places with these rules; more can be borrowed from `common`.
    pub fn new(rules: PlaceRules, common: Option<Arc<Common>>) -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), crowd: Mutex::new(Crowd::new(rules, common)) })
    }

    /// Takes a place, if necessary that of the connection of least use. Waits only while no connection can be closed.
    pub async fn enter(self: &Arc<Self>) -> Place {
        loop {
            let wait = match self.room() {
                Room::Free(guest) => return Place(guest),
                Room::Made(guest) => {
                    // If a connection of this thread has lost its place, it closes itself now.
                    tokio::task::yield_now().await;
                    return Place(guest);
                }
                Room::After(wait) => wait,
            };
            // A connection that could not be closed may be proven a moment later.
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

    /// Closes connections whose time is up, once a second, for ever.
    pub async fn look_after(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.crowd().let_go(self.now_ms());
        }
    }

    /// Closes all connections that are not being answered.
    pub fn evict_idle(&self) {
        self.crowd().evict_idle();
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
        // Pinned in a box once: a future inside a future would take its memory twice.
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
    /// A connection for tests in which it does not matter.
    #[cfg(test)]
    pub(super) fn anybody() -> Arc<Self> {
        let minute = Duration::from_secs(60);
        let rules = PlaceRules { own: 1, unproven: 1, first: minute, idle: minute, grace: minute };
        match ConnectionPlaces::new(rules, None).room() {
            Room::Free(guest) | Room::Made(guest) => guest,
            Room::After(wait) => panic!("no place within {wait:?}"),
        }
    }

    /// Begins an answer; `None` if the place is lost and the connection about to end.
    pub fn begin(self: &Arc<Self>) -> Option<Busy> {
        let more = |busy| (busy != LOST).then(|| busy + 1);
        let begun = self.busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        begun.is_ok().then(|| Busy(Arc::clone(self)))
    }

    /// Marks the connection as proven: it has shown its token and asked something.
    pub fn is_proven_now(&self) {
        if !self.is_proven.swap(true, Ordering::Relaxed) {
            let now_ms = self.places.now_ms();
            self.answered_ms.store(now_ms, Ordering::Relaxed);
            self.places.crowd().knows(self.id, now_ms);
        }
    }

    /// Notes how many bytes of an unfinished request the connection has sent, or of answers it has not taken. With `within`,
    /// the rest must be sent or taken within that time from now; otherwise the old deadline stays.
    pub fn holds(&self, bytes: usize, within: Option<Duration>) {
        let due_ms = within.map(|time| self.places.now_ms() + time.as_millis() as u64);
        self.places.crowd().holds(self.id, bytes, due_ms);
    }

    /// The connection's rank in the order of connections that lose their places.
    fn rank(&self, now_ms: u64) -> CrowdRank {
        let is_proven = self.is_proven.load(Ordering::Relaxed);
        let since_ms = match is_proven {
            true if self.busy.load(Ordering::SeqCst) > 0 => now_ms,
            true => self.answered_ms.load(Ordering::Relaxed),
            // The time of an unproven connection never starts again, whatever it sends.
            false => self.entered_ms,
        };
        CrowdRank { is_proven, since_ms, id: self.id }
    }

    /// Takes the place away unless an answer is in progress.
    fn is_let_go(&self) -> bool {
        let lost = self.busy.compare_exchange(0, LOST, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if lost {
            self.end();
        }
        lost
    }

    /// Takes the place away even if an answer is in progress.
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
