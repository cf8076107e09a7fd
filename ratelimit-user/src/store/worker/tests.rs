//! The worker with a store in memory, whose server does nothing unless a test lets it.

pub(crate) mod scripted;

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::oneshot, task::yield_now};

use super::Store;
use crate::{
    config,
    meter::{Meter, RequestBucket},
    policy::address::Endpoint,
    store::{
        ask::{Ask, CountedLimit},
        backend::{Backend, TakeAnswer},
        deadline::Deadline,
        inquiry::Inquiry,
        lease_batch,
        redis::{Call, Persistence, Role, ServerFacts, StoreError, Value},
    },
};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// A store of one server.
#[derive(Clone, Default)]
struct Memory(Arc<Server>);

#[derive(Default)]
struct Server {
    /// Runs that have reached the server, in their order: how many keys they have, and whose word lets them end.
    queue: Mutex<Vec<(usize, oneshot::Sender<()>)>>,
    /// Whether runs that reach the server wait to be let go.
    is_held: AtomicBool,
    is_down: AtomicBool,
    /// Whether questions where the store is are answered with another place.
    is_elsewhere: AtomicBool,
    /// Whether questions where the store is are never answered.
    is_nowhere: AtomicBool,
    /// How often it was asked where the store is.
    asked_where: AtomicU64,
    connections: AtomicU64,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory")
    }
}

impl Memory {
    fn refused(&self) -> Option<StoreError> {
        let refused = || StoreError::Unreachable { at: "memory:1".into(), why: "refused".into() };
        self.0.is_down.load(Ordering::Relaxed).then(refused)
    }

    /// The sizes of the runs that wait at the server.
    fn waiting(&self) -> Vec<usize> {
        self.0.queue.lock().unwrap().iter().map(|(keys, _)| *keys).collect()
    }

    /// Has the server carry out the first run that waits.
    fn let_go(&self) {
        let (_, end) = self.0.queue.lock().unwrap().remove(0);
        end.send(()).unwrap();
    }
}

fn answer(call: &Call<'_>) -> Value {
    match call.script.name() {
        "reset" => Value::Okay,
        // Ten numbers for each record, which is an argument behind four others: the first says that it was spent.
        _ => Value::Array(
            call.args[4..].iter().flat_map(|_| [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]).map(Value::Int).collect(),
        ),
    }
}

impl Backend for Memory {
    type Address = Self;

    fn is_sharded(_: &Self) -> bool {
        true
    }

    async fn open(address: &Self, until: Deadline) -> Result<Self, StoreError> {
        address.successor(&[], until).await
    }

    async fn successor(&self, _: &[Endpoint], _: Deadline) -> Result<Self, StoreError> {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
        self.refused().map_or_else(|| Ok(self.clone()), Err)
    }

    fn servers(&self) -> Vec<(Endpoint, Option<StoreError>)> {
        vec![(Endpoint::Tcp { host: "memory".into(), port: 1 }, self.refused())]
    }

    fn server_of(&self, _: &Call<'_>) -> Option<Endpoint> {
        Some(Endpoint::Tcp { host: "memory".into(), port: 1 })
    }

    async fn run_each(&self, calls: &[Call<'_>], until: Deadline, take: TakeAnswer<'_>) {
        let is_quick = |call: &Call<'_>| call.keys[0].starts_with(b"quick");
        let answered = |call: &Call<'_>| self.refused().map_or_else(|| Ok(answer(call)), Err);
        for (at, call) in calls.iter().enumerate().filter(|(_, call)| is_quick(call)) {
            take(at, answered(call));
        }
        let calls: Vec<_> = calls.iter().enumerate().filter(|(_, call)| !is_quick(call)).collect();
        let mut late = None;
        if self.0.is_held.load(Ordering::Relaxed) {
            let (end, ended) = oneshot::channel();
            let keys = calls.iter().map(|(_, call)| call.keys.len()).sum();
            self.0.queue.lock().unwrap().push((keys, end));
            late = until.hold("memory:1", async { Ok(ended.await) }).await.err();
        }
        for (at, call) in calls {
            take(at, late.clone().map_or_else(|| answered(call), Err));
        }
    }

    async fn has_moved(&self, _: Deadline) -> bool {
        self.0.asked_where.fetch_add(1, Ordering::Relaxed);
        if self.0.is_nowhere.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.0.is_elsewhere.load(Ordering::Relaxed)
    }

    async fn facts(&self, _: Deadline) -> Result<Vec<ServerFacts>, StoreError> {
        let facts = ServerFacts {
            at: "memory:1".into(),
            version: (7, 0, 0),
            run_id: String::new(),
            role: Role::Master,
            time_us: 0,
            maxmemory: 0,
            maxmemory_policy: "noeviction".into(),
            persistence: Persistence::Log,
        };
        Ok(vec![facts])
    }
}

/// Runs a test with a store in memory that has been found.
fn with_store<F: Future<Output = ()>>(test: impl FnOnce(Store, Memory) -> F) {
    let policy =
        config::parse("[source]\nlimits = [\"1/s\"]\n[cluster]\nredis = \"redis://127.0.0.1\"\n", "policy")
            .unwrap()
            .policy;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let memory = Memory::default();
    let handle = runtime.handle().clone();
    let (store, work) =
        Store::begin::<Memory>(&memory, policy.cluster().unwrap(), "host".into(), LONG, handle);
    runtime.block_on(async {
        tokio::spawn(work);
        store.meet().await.unwrap();
        test(store, memory).await;
    });
}

fn inquiry() -> Arc<[Inquiry]> {
    inquiry_about("t:{a}:b")
}

fn inquiry_about(key: &str) -> Arc<[Inquiry]> {
    let limits = vec![CountedLimit::plain(Meter::Bucket(RequestBucket::new(1, 1_000_000, 1)))];
    Arc::from([Inquiry { key: key.into(), limits, ask: Ask::default() }])
}

/// Makes a job of `calls` calls with five keys each.
fn job(calls: usize) -> Vec<Call<'static>> {
    vec![Call { keys: vec![b"k".to_vec(); 5], ..lease_batch::reset("k") }; calls]
}

/// Lets the worker do whatever it can.
async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

#[test]
fn a_request_is_behind_two_pieces_of_a_long_job_and_never_behind_all_of_it() {
    with_store(|store, memory| async move {
        memory.0.is_held.store(true, Ordering::Relaxed);
        let long = tokio::spawn({
            let store = store.clone();
            async move { store.run(job(600), LONG).await }
        });
        settle().await;
        assert_eq!(memory.waiting(), [500, 500], "of 3000 keys");
        let request = tokio::spawn({
            let store = store.clone();
            async move { store.ask(inquiry(), store.patience()).await }
        });
        settle().await;
        assert_eq!(memory.waiting(), [500, 500, 1]);
        memory.let_go();
        settle().await;
        assert_eq!(memory.waiting(), [500, 1, 500], "what comes later is behind the request");
        memory.let_go();
        memory.let_go();
        assert!(request.await.unwrap().unwrap()[0].is_ok() && !long.is_finished());
        settle().await;
        while !memory.waiting().is_empty() {
            memory.let_go();
            settle().await;
        }
        let answers = long.await.unwrap();
        assert!(answers.len() == 600 && answers.iter().all(Result::is_ok));
        assert_eq!(memory.0.connections.load(Ordering::Relaxed), 1, "one connection for all of it");
        assert_eq!(store.counts(), (1, 0));
    });
}

#[test]
fn a_slow_call_holds_back_no_other_request() {
    with_store(|store, memory| async move {
        memory.0.is_held.store(true, Ordering::Relaxed);
        let ask = |key| {
            let store = store.clone();
            tokio::spawn(async move { store.ask(inquiry_about(key), store.patience()).await })
        };
        // The first two go together: the first batch begins when the worker has its turn.
        let (slow, quick) = (ask("slow"), ask("quick"));
        assert!(quick.await.unwrap().unwrap()[0].is_ok(), "in the batch of the slow one");
        assert!(ask("quick, behind").await.unwrap().unwrap()[0].is_ok(), "in the next batch");
        assert!(!slow.is_finished());
        while !memory.waiting().is_empty() {
            memory.let_go();
            settle().await;
        }
        assert!(slow.await.unwrap().unwrap()[0].is_ok());
        assert_eq!(store.counts(), (3, 0));
    });
}

#[test]
fn a_call_with_many_keys_is_under_way_alone() {
    with_store(|store, memory| async move {
        memory.0.is_held.store(true, Ordering::Relaxed);
        let large = Call { keys: vec![b"k".to_vec(); 3_000], ..lease_batch::reset("k") };
        let long = tokio::spawn(async move { store.run(vec![large; 3], LONG).await });
        for _ in 0..3 {
            settle().await;
            assert_eq!(memory.waiting(), [3_000]);
            memory.let_go();
        }
        assert_eq!(long.await.unwrap().len(), 3);
    });
}

#[test]
fn a_job_ends_with_its_deadline_and_sends_nothing_more() {
    with_store(|store, memory| async move {
        memory.0.is_held.store(true, Ordering::Relaxed);
        let answers = store.run(job(600), Duration::from_millis(20)).await;
        let late = |answer: &Result<Value, StoreError>| answer.as_ref().is_err_and(StoreError::is_late);
        assert!(answers.len() == 600 && answers.iter().all(late), "{answers:?}");
        assert_eq!(memory.waiting().iter().filter(|keys| **keys == 500).count(), 2);
        assert!(store.is_up(), "a job that was late says nothing of requests");
    });
}

#[test]
fn whoever_waits_for_a_store_that_is_gone_hears_why_at_once_and_meets_it_anew() {
    with_store(|store, memory| async move {
        let first = store.meet().await.unwrap().number;
        memory.0.is_down.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            let error = store.meet().await.unwrap_err();
            assert_eq!(error.to_string(), "Redis at memory:1 cannot be reached: refused");
        }
        while memory.0.connections.load(Ordering::Relaxed) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        memory.0.is_down.store(false, Ordering::Relaxed);
        let again = loop {
            match store.meet().await {
                Ok(met) if met.number != first => break met,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        assert_eq!((again.number, again.servers.len()), (first + 1, 1), "it is greeted again");
    });
}

/// Waits for something that the worker does by itself. It waits in steps: a machine that stood still has not waited.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not so: {what}");
}

#[test]
fn a_store_that_is_elsewhere_is_looked_for_and_what_was_left_is_no_store() {
    with_store(|store, memory| async move {
        let connections = || memory.0.connections.load(Ordering::Relaxed);
        let asked_where = || memory.0.asked_where.load(Ordering::Relaxed);
        until("it is asked where the store is", || asked_where() == 2).await;
        assert_eq!(connections(), 1, "it is where it was");
        memory.0.is_elsewhere.store(true, Ordering::Relaxed);
        until("it is looked for", || connections() == 2).await;
        assert_eq!(asked_where(), 3, "with the first answer");
        assert!(store.is_up());
        // The server that was left does not answer any more.
        memory.0.is_down.store(true, Ordering::Relaxed);
        until("what was left is asked nothing any more", || !store.is_up()).await;
    });
}

#[test]
fn nobody_waits_for_those_who_do_not_say_where_the_store_is() {
    with_store(|store, memory| async move {
        memory.0.is_nowhere.store(true, Ordering::Relaxed);
        until("it is asked where the store is", || memory.0.asked_where.load(Ordering::Relaxed) == 1).await;
        assert!(store.ask(inquiry(), store.patience()).await.unwrap()[0].is_ok());
        assert!(store.run(job(1), LONG).await[0].is_ok());
        assert_eq!(store.meet().await.unwrap().number, 1);
    });
}
