//! A store in memory that answers as a test says, and remembers what it was asked, for tests of those who ask the worker.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use crate::{
    policy::{Policy, address::Endpoint},
    store::{
        backend::{Backend, TakeAnswer},
        deadline::Deadline,
        redis::{Call, Persistence, Role, ServerFacts, StoreError, Value},
        worker::Store,
    },
};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// What the store was told about one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) sequence: u64,
    pub(crate) used: u64,
    pub(crate) held: u64,
    pub(crate) wanted: u64,
    pub(crate) spend: u64,
    pub(crate) refund: u64,
    pub(crate) age_us: u64,
    pub(crate) peek: bool,
}

/// A store of one server.
#[derive(Clone, Default)]
pub(crate) struct Scripted(Arc<Mutex<Server>>);

#[derive(Default)]
struct Server {
    /// The ten numbers of the answer about each key that has this word in it. Where there are none, everything that is asked for is spent.
    answers: BTreeMap<String, [i64; 10]>,
    heard: Vec<(String, Heard)>,
    resets: Vec<String>,
    is_down: bool,
}

impl fmt::Display for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("scripted")
    }
}

impl Scripted {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.0.lock().unwrap()
    }

    /// Sets the answer about keys that have this word in them.
    pub(crate) fn answer(&self, word: &str, answer: [i64; 10]) {
        self.server().answers.insert(word.to_owned(), answer);
    }

    /// Returns what was asked since the last time, in its order: the part of the key behind its hash tag, and the question.
    pub(crate) fn heard(&self) -> Vec<(String, Heard)> {
        std::mem::take(&mut self.server().heard)
    }

    /// Keys that were reset.
    pub(crate) fn resets(&self) -> Vec<String> {
        std::mem::take(&mut self.server().resets)
    }

    /// Sets whether the store does not answer.
    pub(crate) fn is_down(&self, is_down: bool) {
        self.server().is_down = is_down;
    }

    fn refused(&self) -> Option<StoreError> {
        let refused = || StoreError::Unreachable { at: "scripted:1".into(), why: "refused".into() };
        self.server().is_down.then(refused)
    }

    fn carry_out(&self, call: &Call<'_>) -> Value {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut server = self.server();
        if call.script.name() == "reset" {
            server.resets.push(text(&call.keys[0]));
            return Value::Okay;
        }
        let mut numbers = Vec::new();
        for (key, packed) in call.keys.iter().zip(&call.args[4..]) {
            let number =
                |at: usize| f64::from_le_bytes(packed[8 * at..8 * at + 8].try_into().unwrap()) as u64;
            let heard = Heard {
                sequence: number(0),
                used: number(1),
                held: number(2),
                wanted: number(3),
                spend: number(5),
                refund: number(8),
                age_us: number(9),
                peek: number(10) == 1,
            };
            let key = text(key);
            let answers = server.answers.iter();
            let answer =
                answers.filter(|(word, _)| key.contains(word.as_str())).map(|(_, answer)| *answer).next();
            if !key.ends_with(":probe") {
                server.heard.push((key.split_once("}:").unwrap().1.to_owned(), heard));
            }
            numbers.extend(answer.unwrap_or([1, 0, 0, 0, 0, 0, 0, 0, 0, 0]).map(Value::Int));
        }
        Value::Array(numbers)
    }
}

impl Backend for Scripted {
    type Address = Self;

    fn is_sharded(_: &Self) -> bool {
        false
    }

    async fn open(address: &Self, until: Deadline) -> Result<Self, StoreError> {
        address.successor(&[], until).await
    }

    async fn successor(&self, _: &[Endpoint], _: Deadline) -> Result<Self, StoreError> {
        self.refused().map_or_else(|| Ok(self.clone()), Err)
    }

    fn servers(&self) -> Vec<(Endpoint, Option<StoreError>)> {
        vec![(Endpoint::Tcp { host: "scripted".into(), port: 1 }, self.refused())]
    }

    fn server_of(&self, _: &Call<'_>) -> Option<Endpoint> {
        Some(Endpoint::Tcp { host: "scripted".into(), port: 1 })
    }

    async fn run_each(&self, calls: &[Call<'_>], _: Deadline, take: TakeAnswer<'_>) {
        for (at, call) in calls.iter().enumerate() {
            take(at, self.refused().map_or_else(|| Ok(self.carry_out(call)), Err));
        }
    }

    async fn facts(&self, _: Deadline) -> Result<Vec<ServerFacts>, StoreError> {
        let facts = ServerFacts {
            at: "scripted:1".into(),
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

/// Runs a test with the store of a policy that has been found.
pub(crate) fn with_scripted<F: Future<Output = ()>>(
    policy: &Policy,
    test: impl FnOnce(Store, Scripted) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let scripted = Scripted::default();
    let (store, work) = Store::begin::<Scripted>(
        &scripted,
        policy.cluster().unwrap(),
        "host".into(),
        LONG,
        runtime.handle().clone(),
    );
    runtime.block_on(async {
        tokio::spawn(work);
        store.meet().await.unwrap();
        test(store, scripted).await;
    });
}

/// Lets the worker do whatever it can.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
