//! Asking the store about requests: whatever is asked while a batch is under way goes with the next. Nobody waits longer than a deadline, and not at all
//! for servers that count as away ([`servers`]). Those are looked for beside that ([`search`]).

mod notices;
mod search;
mod servers;

use std::{
    collections::{BTreeMap, btree_map},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

pub use self::servers::Condition;
use self::{
    notices::Notices,
    search::{Found, Probe},
    servers::Servers,
};
use super::{
    account::Told,
    exchange::recent_us,
    inquiry::{self, Inquiry},
    letter,
    redis::{Call, Link, StoreError},
};
use crate::{
    clock::Clock,
    log,
    policy::{
        Policy,
        address::{Endpoint, StoreAddress},
    },
};

/// For how long an answer is waited for. Several round trips to a store nearby; whoever asks has a person waiting.
pub const DEADLINE: Duration = Duration::from_millis(50);
/// Making a connection may take longer: nobody waits for it.
const CONNECTING: Duration = Duration::from_millis(500);
/// Questions that wait at most. One more is answered as if the store were gone.
const QUEUE: usize = 10_000;
/// Questions in one batch: a call for each server or slot.
const BATCH: usize = 1_000;
/// How often a store is looked for none of whose servers answers;
const PROBE: Duration = Duration::from_millis(100);
/// and one some of whose servers do not, which takes time from those that do;
const PROBE_PARTS: Duration = Duration::from_millis(500);
/// and one that somebody has to set right first.
const PROBE_WRONG: Duration = Duration::from_secs(1);

/// The store did not answer in time, or counts as gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// The way to the store.
#[derive(Clone, Debug)]
pub struct Store {
    questions: mpsc::Sender<Question>,
    facts: Arc<Facts>,
    deadline: Duration,
    runtime: tokio::runtime::Handle,
}

/// What is known of the store.
#[derive(Debug, Default)]
struct Facts {
    is_up: AtomicBool,
    asked: AtomicU64,
    failed: AtomicU64,
    condition: Mutex<Condition>,
}

/// One for each inquiry of a question: a part of a cluster may be away.
type Answers = Vec<Result<Told, Unavailable>>;

enum Question {
    Take { inquiries: Arc<[Inquiry]>, answer: Option<oneshot::Sender<Answers>> },
    Reset { keys: Vec<String> },
}

impl Store {
    /// Connects in a thread of its own. Until that has worked, the store counts as gone. Its keys begin with `name`; each of its answers is waited for
    /// until `deadline`.
    fn connect(
        address: &StoreAddress,
        name: &str,
        host: String,
        tick: Duration,
        deadline: Duration,
    ) -> std::io::Result<Self> {
        let (questions, queue) = mpsc::channel(QUEUE);
        let facts = Arc::new(Facts::default());
        let teller = Teller {
            address: address.clone(),
            probe: Probe { name: name.to_owned(), host, recent_us: recent_us(tick) },
            facts: Arc::clone(&facts),
            deadline,
            clock: Clock::start(),
            link: None,
            servers: Servers::default(),
            notices: Notices::default(),
            search: None,
            is_wanted: true,
            searched: None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        thread::Builder::new().name("store".to_owned()).spawn(move || runtime.block_on(teller.run(queue)))?;
        Ok(Self { questions, facts, deadline, runtime: handle })
    }

    /// The store of a policy, if it has one. `host` is what this start of this host is called there; made up if there is none.
    pub fn of(policy: &Policy, host: Option<&str>) -> std::io::Result<Option<Self>> {
        Self::with_deadline(policy, host, DEADLINE)
    }

    /// As [`Self::of`], for callers that can wait for an answer until another deadline.
    pub fn with_deadline(
        policy: &Policy,
        host: Option<&str>,
        deadline: Duration,
    ) -> std::io::Result<Option<Self>> {
        let Some(cluster) = policy.cluster() else { return Ok(None) };
        let host = host.map_or_else(made_up_name, ToOwned::to_owned);
        Self::connect(cluster.redis(), cluster.name(), host, cluster.tick(), deadline).map(Some)
    }

    /// Where whatever else has to do with the store may run.
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// How its servers are.
    pub fn condition(&self) -> Condition {
        self.facts.condition.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether any of its servers answers.
    pub fn is_up(&self) -> bool {
        self.facts.is_up.load(Ordering::Relaxed)
    }

    /// Questions that were asked, and those that had no answer.
    pub fn counts(&self) -> (u64, u64) {
        (self.facts.asked.load(Ordering::Relaxed), self.facts.failed.load(Ordering::Relaxed))
    }

    /// Asks, and waits for those answers that there are.
    pub async fn ask(&self, inquiries: Arc<[Inquiry]>) -> Result<Answers, Unavailable> {
        if !self.is_up() {
            return Err(Unavailable);
        }
        let (answer, answered) = oneshot::channel();
        let count = inquiries.len();
        let question = Question::Take { inquiries, answer: Some(answer) };
        self.questions.try_send(question).map_err(|_| Unavailable)?;
        // The batch before may take its time, too.
        let answers = match tokio::time::timeout(2 * self.deadline, answered).await {
            Ok(Ok(answers)) => Ok(answers),
            _ => Err(Unavailable),
        };
        let missing = |answers: &Answers| answers.iter().filter(|answer| answer.is_err()).count();
        let failed = answers.as_ref().map_or(count, missing);
        self.facts.failed.fetch_add(failed as u64, Ordering::Relaxed);
        answers
    }

    /// Says something that needs no answer. It is lost if the store is gone.
    pub fn tell(&self, inquiries: Vec<Inquiry>) {
        let _lost = self.questions.try_send(Question::Take { inquiries: inquiries.into(), answer: None });
    }

    /// Forgets keys.
    pub fn reset(&self, keys: Vec<String>) {
        let _lost = self.questions.try_send(Question::Reset { keys });
    }
}

/// A name that no other start of any host has.
fn made_up_name() -> String {
    use std::hash::BuildHasher as _;
    let random = std::collections::hash_map::RandomState::new().hash_one(std::process::id());
    format!("serve-{}-{random:016x}", std::process::id())
}

/// The answers of a batch to each of its questions, which have so many of them.
fn dealt<Q>(answers: Answers, questions: Vec<(usize, Q)>) -> impl Iterator<Item = (Answers, Q)> {
    let mut answers = answers.into_iter();
    questions.into_iter().map(move |(count, question)| (answers.by_ref().take(count).collect(), question))
}

/// Talks to the store.
struct Teller {
    address: StoreAddress,
    probe: Probe,
    facts: Arc<Facts>,
    /// For how long an answer is waited for.
    deadline: Duration,
    clock: Clock,
    link: Option<Link>,
    servers: Servers,
    notices: Notices,
    /// The search for servers that are away, while one is under way.
    search: Option<JoinHandle<Result<Found, StoreError>>>,
    /// Whether somebody has said that the link leads to the wrong place.
    is_wanted: bool,
    /// When a search has last ended.
    searched: Option<Instant>,
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teller").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Teller {
    async fn run(mut self, mut queue: mpsc::Receiver<Question>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            self.report();
            let due = self.search_due();
            let behind = self.notices.is_behind().then(|| self.notices.next()).flatten();
            tokio::select! {
                taken = queue.recv_many(&mut batch, BATCH) => match taken {
                    0 => return,
                    _ => self.serve(std::mem::take(&mut batch)).await,
                },
                found = ended(&mut self.search) => self.take_in(found),
                () = at(due), if due.is_some() => self.begin_search(),
                () = at(behind), if behind.is_some() => {}
            }
        }
    }

    /// Tells everybody how the store is.
    fn report(&mut self) {
        let condition = self.servers.condition();
        if let Some((warns, line)) =
            self.notices.notice(&condition, &self.address.to_string(), Instant::now())
        {
            let say = if warns { log::warning } else { log::info };
            say(line);
        }
        self.facts.is_up.store(condition.answering > 0, Ordering::Relaxed);
        let mut known = self.facts.condition.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != condition {
            *known = condition;
        }
    }

    /// When to look for servers that are away; none if all are there, or it is being looked for them.
    fn search_due(&self) -> Option<Instant> {
        let Condition { answering, away, problem, .. } = self.servers.condition();
        if self.search.is_some() || !(self.is_wanted || away > 0 || self.link.is_none()) {
            return None;
        }
        let pause = match problem {
            Some(problem) if answering == 0 && !problem.is_transient() => PROBE_WRONG,
            _ if answering > 0 && !self.is_wanted => PROBE_PARTS,
            _ => PROBE,
        };
        Some(self.searched.map_or_else(Instant::now, |searched| searched + pause))
    }

    fn begin_search(&mut self) {
        self.is_wanted = false;
        let successor = self.link.as_ref().map(|link| link.successor(CONNECTING));
        let (address, probe, deadline) = (self.address.clone(), self.probe.clone(), self.deadline);
        self.search = Some(tokio::spawn(async move {
            let link = match successor {
                Some(successor) => successor.await?,
                None => Link::open(&address, CONNECTING).await?,
            };
            search::probed(link, &probe, CONNECTING, deadline).await
        }));
    }

    fn take_in(&mut self, found: Result<Found, StoreError>) {
        (self.search, self.searched) = (None, Some(Instant::now()));
        match found {
            Ok(Found { link, probed }) => {
                self.servers.connected(link.servers());
                for (server, error) in probed {
                    self.servers.probed(&server, error);
                }
                self.link = Some(link);
            }
            Err(error) => self.servers.not_found(error),
        }
    }

    async fn serve(&mut self, batch: Vec<Question>) {
        let (mut inquiries, mut waiting, mut resets) = (Vec::new(), Vec::new(), Vec::new());
        for question in batch {
            match question {
                Question::Take { inquiries: asked, answer } => {
                    waiting.push((asked.len(), answer));
                    inquiries.push(asked);
                }
                Question::Reset { keys } => resets.extend(keys),
            }
        }
        self.reconnect().await;
        self.forget(&resets).await;
        let inquiries: Vec<&Inquiry> = inquiries.iter().flat_map(|asked| asked.iter()).collect();
        let answers = self.ask(&inquiries).await;
        for (told, answer) in dealt(answers, waiting) {
            // Whoever asked may have stopped waiting.
            let _gone = answer.map(|answer| answer.send(told));
        }
        self.reconnect().await;
    }

    /// Connects again where a connection has just been lost. Most were only idle for too long; those that cannot be had again at once are looked
    /// for while others are asked.
    async fn reconnect(&mut self) {
        let Some(link) = &mut self.link else { return };
        let is_news = |(server, error): (&Endpoint, Option<&StoreError>)| {
            error.is_some() && !self.servers.is_away(server)
        };
        if !link.has_ended() && !link.servers().any(is_news) {
            return;
        }
        if let Err(error) = link.mend(self.deadline).await {
            link.give_up_ended(&error);
        }
        self.servers.connected(link.servers());
    }

    /// One answer for each question.
    async fn ask(&mut self, inquiries: &[&Inquiry]) -> Answers {
        let mut answers = vec![Err(Unavailable); inquiries.len()];
        let Some(link) = &mut self.link else { return answers };
        if inquiries.is_empty() || self.servers.condition().answering == 0 {
            return answers;
        }
        self.facts.asked.fetch_add(inquiries.len() as u64, Ordering::Relaxed);
        let Probe { host, recent_us, .. } = &self.probe;
        let (places, calls): (Vec<Vec<usize>>, Vec<Call<'_>>) =
            inquiry::calls(host, *recent_us, inquiries, link.is_cluster(), self.clock.now_us())
                .into_iter()
                .unzip();
        let mut heard: BTreeMap<Endpoint, Option<StoreError>> = BTreeMap::new();
        let values = link.run(&calls, self.deadline).await;
        for ((places, call), value) in places.iter().zip(&calls).zip(values) {
            let error = match value.and_then(|value| inquiry::answers(&value, places.len())) {
                Ok(told) => {
                    places.iter().zip(told).for_each(|(at, told)| answers[*at] = Ok(told));
                    None
                }
                Err(error) => Some(error),
            };
            let is_late = matches!(error, Some(StoreError::TimedOut { .. }));
            self.is_wanted |= error.as_ref().is_some_and(StoreError::needs_reconnect) && !is_late;
            let Some(server) = link.server_of(call) else { continue };
            match heard.entry(server) {
                btree_map::Entry::Vacant(place) => _ = place.insert(error),
                // One answer is enough to know that it answers.
                btree_map::Entry::Occupied(mut known) if error.is_none() => *known.get_mut() = None,
                btree_map::Entry::Occupied(_) => {}
            }
        }
        for (server, error) in heard {
            if self.servers.heard(&server, error.as_ref())
                && let Some(error) = error
            {
                link.give_up(&server, error);
            }
        }
        answers
    }

    async fn forget(&mut self, keys: &[String]) {
        let Some(link) = &mut self.link else { return };
        let calls: Vec<Call<'_>> = keys.iter().map(|key| letter::reset(key)).collect();
        for error in link.run(&calls, self.deadline).await.into_iter().filter_map(Result::err) {
            log::warning(format!("a key was not reset in the store: {error}"));
        }
    }
}

/// What a search has come to; never if there is none.
async fn ended(search: &mut Option<JoinHandle<Result<Found, StoreError>>>) -> Result<Found, StoreError> {
    let Some(search) = search else { return std::future::pending().await };
    let broken = |error: tokio::task::JoinError| {
        Err(StoreError::Lost { at: "the store".into(), why: error.to_string() })
    };
    search.await.unwrap_or_else(broken)
}

async fn at(moment: Option<Instant>) {
    tokio::time::sleep_until(moment.unwrap_or_else(Instant::now).into()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_answer_shifts_no_answer_to_another_question() {
        let told = |free| {
            Ok(Told {
                spent: true,
                wait_us: 0,
                granted: 0,
                free,
                nearest: 0,
                more_us: 0,
                violated: 0,
                above: false,
                holds: 0,
                heard: 0,
            })
        };
        let answers = vec![told(1), Err(Unavailable), told(3), told(4), told(5)];
        let dealt: Vec<(Answers, &str)> = dealt(answers, vec![(1, "a"), (3, "b"), (1, "c")]).collect();
        let expected =
            [(vec![told(1)], "a"), (vec![Err(Unavailable), told(3), told(4)], "b"), (vec![told(5)], "c")];
        assert_eq!(dealt, expected);
    }
}
