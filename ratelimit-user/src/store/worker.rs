//! The store worker: the one thread of this process that talks to the store, over one connection to each server.
//!
//! ```text
//! requests ----> batches, 50 ms each at most --------\
//! packet leases, blocks, members --> bulk, in pieces --+--> backend --> servers
//! search: connects, asks whether a server works -------/
//! moves: asks once a second whether the store is elsewhere by now
//! checkup: looks every five seconds whether servers still take writes, and keep what they are told
//! ```
//! Requests come first: bulk has no more on its way than a server carries out in a fraction of their deadline (`bulk`), and a task that finds a server
//! of no use tells the search and goes on. No call waits for another's slow call.

mod bulk;
mod checkup;
mod moves;
mod notices;
mod requests;
mod resets;
mod search;
mod servers;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};

use self::{
    bulk::Job,
    checkup::ServerClocks,
    notices::Notices,
    requests::{Answers, Inquiries},
    resets::KeptResets,
    search::Probe,
    servers::Servers,
};
pub use self::{
    bulk::Met,
    resets::{Full, MOST_KEPT},
    servers::Condition,
};
use super::{
    AddressedStore,
    backend::Backend,
    exchange::recent_us,
    inquiry::Inquiry,
    redis::{Call, StoreError, Value},
    round_trip::RoundTrip,
};
use crate::{
    clock::Clock,
    log,
    policy::{ClusterPolicy, Policy},
};

/// How long an answer to a request is waited for: several round trips to a store nearby. A person waits behind the request.
pub const DEADLINE: Duration = Duration::from_millis(50);
/// The most inquiries of requests that wait. One more is answered as if the store were gone.
const QUEUE: usize = 10_000;
/// The most jobs that wait. A task that has one waits for its end before the next.
const JOBS: usize = 16;

/// The store did not answer in time, or counts as gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// A handle of the store worker.
#[derive(Clone, Debug)]
pub struct Store {
    requests: mpsc::Sender<Inquiries>,
    jobs: mpsc::Sender<Job>,
    known: Arc<StoreHealth>,
    deadline: Duration,
    is_sharded: bool,
    runtime: tokio::runtime::Handle,
}

/// What is known of the store.
#[derive(Debug)]
struct StoreHealth {
    is_up: AtomicBool,
    asked: AtomicU64,
    failed: AtomicU64,
    /// Whether the policy has limits of requests that the store must not lose when it starts again.
    must_last: AtomicBool,
    condition: Mutex<Condition>,
    /// Warnings for operators about servers that answer, as sentences.
    warnings: Mutex<Vec<String>>,
    round_trip: Mutex<RoundTrip>,
    clocks: Mutex<ServerClocks>,
    /// Resets that the store has not confirmed.
    resets: Mutex<KeptResets>,
    /// Wakes the task that tells the store of resets.
    reset_wanted: Notify,
}

impl StoreHealth {
    fn new(round_trip: RoundTrip) -> Self {
        Self {
            is_up: AtomicBool::default(),
            asked: AtomicU64::default(),
            failed: AtomicU64::default(),
            must_last: AtomicBool::default(),
            condition: Mutex::default(),
            warnings: Mutex::default(),
            round_trip: Mutex::new(round_trip),
            clocks: Mutex::new(ServerClocks::new(Instant::now())),
            resets: Mutex::default(),
            reset_wanted: Notify::new(),
        }
    }

    fn resets(&self) -> MutexGuard<'_, KeptResets> {
        self.resets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn warnings(&self) -> MutexGuard<'_, Vec<String>> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clocks(&self) -> MutexGuard<'_, ServerClocks> {
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn round_trip(&self) -> MutexGuard<'_, RoundTrip> {
        self.round_trip.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Starts the worker for the store of a policy, if it has one. `host` is the name of this start of this host in the store; it is made up if there is none.
    pub fn of(policy: &Policy, host: Option<&str>) -> std::io::Result<Option<Self>> {
        Self::with_deadline(policy, host, DEADLINE)
    }

    /// Starts the worker as [`Self::of`] does, for callers that can wait for an answer until another deadline.
    pub fn with_deadline(
        policy: &Policy,
        host: Option<&str>,
        deadline: Duration,
    ) -> std::io::Result<Option<Self>> {
        let Some(cluster) = policy.cluster() else { return Ok(None) };
        let host = host.map_or_else(made_up_name, ToOwned::to_owned);
        let store = Self::connect::<AddressedStore>(cluster.redis(), cluster, host, deadline)?;
        store.follow(policy);
        Ok(Some(store))
    }

    /// Follows a policy: servers that write nothing down are warned of if that matters for its limits.
    pub fn follow(&self, policy: &Policy) {
        self.known.must_last.store(policy.counts_for_long_in_store(), Ordering::Relaxed);
    }

    /// Connects in a thread of its own. Until that has worked, the store counts as gone.
    fn connect<B: Backend>(
        address: &B::Address,
        policy: &ClusterPolicy,
        host: String,
        deadline: Duration,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (store, work) = Self::begin::<B>(address, policy, host, deadline, runtime.handle().clone());
        thread::Builder::new().name("store".to_owned()).spawn(move || runtime.block_on(work))?;
        Ok(store)
    }

    /// Makes a handle of the worker, and the work that is to be done on its runtime. The work ends when nobody has a handle any more.
    fn begin<B: Backend>(
        address: &B::Address,
        policy: &ClusterPolicy,
        host: String,
        deadline: Duration,
        runtime: tokio::runtime::Handle,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (requests, request_queue) = mpsc::channel(QUEUE);
        let (jobs, job_queue) = mpsc::channel(JOBS);
        let known = Arc::new(StoreHealth::new(RoundTrip::new(policy.tick(), policy.lease())));
        let is_sharded = B::is_sharded(address);
        let name = policy.name().to_owned();
        let worker = Arc::new(Worker::<B> {
            address: address.clone(),
            probe: Probe { name, host, recent_us: recent_us(policy.tick()), is_sharded },
            known: Arc::clone(&known),
            deadline,
            clock: Clock::start(),
            state: Mutex::default(),
            reconnecting: tokio::sync::Mutex::default(),
            wanted: Notify::new(),
            searched: Notify::new(),
        });
        let work = async move {
            // These tasks end with the runtime.
            tokio::spawn(Arc::clone(&worker).look_after_servers());
            tokio::spawn(Arc::clone(&worker).look_for_moves());
            tokio::spawn(Arc::clone(&worker).look_at_servers());
            tokio::spawn(Arc::clone(&worker).do_jobs(job_queue));
            worker.serve_requests(request_queue).await;
        };
        (Self { requests, jobs, known, deadline, is_sharded, runtime }, work)
    }

    /// The runtime, for other tasks that have to do with the store.
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// Whether keys of one call must share a slot.
    pub fn is_sharded(&self) -> bool {
        self.is_sharded
    }

    /// Returns how the servers are, as requests find them.
    pub fn condition(&self) -> Condition {
        self.known.condition.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether any server answers requests.
    pub fn is_up(&self) -> bool {
        self.known.is_up.load(Ordering::Relaxed)
    }

    /// Returns warnings for operators about servers that answer: those that forget what was spent, when their memory is full or when they start again.
    pub fn warnings(&self) -> Vec<String> {
        self.known.warnings().clone()
    }

    /// Returns how often the clock of a server was set back.
    pub fn clock_steps(&self) -> u64 {
        self.known.clocks().steps
    }

    /// Returns a sentence about the clock of a server that was set a short time ago.
    pub fn clock_step(&self) -> Option<String> {
        self.known.clocks().last_step(Instant::now())
    }

    /// Returns the number of inquiries, and the number of those that had no answer.
    pub fn counts(&self) -> (u64, u64) {
        (self.known.asked.load(Ordering::Relaxed), self.known.failed.load(Ordering::Relaxed))
    }

    /// Returns how long the store takes to answer, as far as it was measured.
    pub fn round_trip(&self) -> RoundTrip {
        *self.known.round_trip()
    }

    /// Returns until when a request that comes now may wait for answers: the batch before may take its time, too.
    pub fn patience(&self) -> Instant {
        Instant::now() + 2 * self.deadline
    }

    /// Asks inquiries, and waits until a moment for those answers that there are.
    pub async fn ask(&self, inquiries: Arc<[Inquiry]>, until: Instant) -> Result<Answers, Unavailable> {
        if !self.is_up() {
            return Err(Unavailable);
        }
        let (answer, answered) = oneshot::channel();
        let count = inquiries.len();
        let asked = Inquiries { inquiries, answer: Some(answer) };
        self.requests.try_send(asked).map_err(|_| Unavailable)?;
        let answers = match tokio::time::timeout_at(until, answered).await {
            Ok(Ok(answers)) => Ok(answers),
            _ => Err(Unavailable),
        };
        let missing = |answers: &Answers| answers.iter().filter(|answer| answer.is_err()).count();
        let failed = answers.as_ref().map_or(count, missing);
        self.known.failed.fetch_add(failed as u64, Ordering::Relaxed);
        answers
    }

    /// Sends inquiries that need no answer. They are lost if the store is gone.
    pub fn tell(&self, inquiries: Vec<Inquiry>) {
        let _lost = self.requests.try_send(Inquiries { inquiries: inquiries.into(), answer: None });
    }

    /// Has the store forget keys, as soon as it takes resets and before it is asked anything about these keys then. Does not wait for the store.
    pub fn reset(&self, keys: Vec<String>) -> Result<(), Full> {
        if !keys.is_empty() {
            self.known.resets().keep(keys)?;
            self.known.reset_wanted.notify_one();
        }
        Ok(())
    }

    /// Waits until there is a connection to any server, as long as one is being made, and returns what the servers tell about themselves.
    pub async fn meet(&self) -> Result<Met, StoreError> {
        let (answer, answered) = oneshot::channel();
        let sent = self.jobs.send(Job::Meet { answer }).await;
        sent.map_err(|_| over())?;
        answered.await.unwrap_or_else(|_| Err(over()))
    }

    /// Runs calls that no request waits for. Returns one answer for each, in their order, not later than after `deadline`.
    pub async fn run(&self, calls: Vec<Call<'static>>, deadline: Duration) -> Vec<Result<Value, StoreError>> {
        let (answer, answered) = oneshot::channel();
        let count = calls.len();
        let _over = self.jobs.send(Job::Run { calls, deadline, answer }).await;
        answered.await.unwrap_or_else(|_| vec![Err(over()); count])
    }
}

/// The error of a job when the worker has ended.
fn over() -> StoreError {
    StoreError::Lost { at: "the store".into(), why: "the store worker has ended".into() }
}

/// A name that no other start of any host has.
fn made_up_name() -> String {
    use std::hash::BuildHasher as _;
    let random = std::collections::hash_map::RandomState::new().hash_one(std::process::id());
    format!("serve-{}-{random:016x}", std::process::id())
}

/// Talks to the store.
struct Worker<B: Backend> {
    address: B::Address,
    probe: Probe,
    known: Arc<StoreHealth>,
    /// How long an answer to a request is waited for.
    deadline: Duration,
    clock: Clock,
    state: Mutex<WorkerState<B>>,
    /// Held by the batch that makes connections again.
    reconnecting: tokio::sync::Mutex<()>,
    /// Wakes the search, because something has changed that it may have to do with.
    wanted: Notify,
    /// Wakes tasks that wait for the end of a search.
    searched: Notify,
}

/// The part of the worker that changes.
struct WorkerState<B> {
    link: Option<Arc<B>>,
    /// Which servers answer requests.
    servers: Servers,
    notices: Notices,
    search: search::SearchState,
}

impl<B> Default for WorkerState<B> {
    fn default() -> Self {
        Self {
            link: None,
            servers: Servers::default(),
            notices: Notices::default(),
            search: search::SearchState::default(),
        }
    }
}

impl<B: Backend> Worker<B> {
    fn state(&self) -> MutexGuard<'_, WorkerState<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self) -> Option<Arc<B>> {
        self.state().link.clone()
    }

    /// Publishes how the store is for requests, and logs changes.
    fn report(&self) {
        let mut state = self.state();
        let condition = state.servers.condition();
        let now = Instant::now().into_std();
        if let Some((warns, line)) = state.notices.notice(&condition, &self.address.to_string(), now) {
            let say = if warns { log::warning } else { log::info };
            say(line);
        }
        drop(state);
        self.known.is_up.store(condition.answering > 0, Ordering::Relaxed);
        let mut known = self.known.condition.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != condition {
            *known = condition;
        }
    }
}
