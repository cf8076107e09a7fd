//! Asking the store about requests: whatever is asked while a batch is under way goes with the next. Nobody waits longer than a deadline, and not at all
//! while the store counts as gone.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};

use crate::{
    cluster::{
        account::Told,
        address::StoreAddress,
        breaker::Breaker,
        exchange::recent_us,
        inquiry::{self, Inquiry},
        letter,
        redis::{Call, Link, StoreError},
    },
    decide::clock::Clock,
    log,
    policy::Policy,
};

/// For how long an answer is waited for. Several round trips to a store nearby; whoever asks has a person waiting.
const DEADLINE: Duration = Duration::from_millis(50);
/// Making a connection may take longer: nobody waits for it.
const CONNECTING: Duration = Duration::from_millis(500);
/// Questions that wait at most. One more is answered as if the store were gone.
const QUEUE: usize = 10_000;
/// Questions in one batch: a call for each server or slot.
const BATCH: usize = 1_000;
/// How often a store that is gone is looked for.
const PROBE: Duration = Duration::from_millis(100);

/// The store did not answer in time, or counts as gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// The way to the store.
#[derive(Clone, Debug)]
pub struct Store {
    questions: mpsc::Sender<Question>,
    facts: Arc<Facts>,
    runtime: tokio::runtime::Handle,
}

/// What is known of the store.
#[derive(Debug, Default)]
struct Facts {
    is_up: AtomicBool,
    asked: AtomicU64,
    failed: AtomicU64,
}

/// One for each inquiry of a question: a part of a cluster may be away.
type Answers = Vec<Result<Told, Unavailable>>;

enum Question {
    Take { inquiries: Arc<[Inquiry]>, answer: Option<oneshot::Sender<Answers>> },
    Reset { keys: Vec<String> },
}

impl Store {
    /// Connects in a thread of its own. Until that has worked, the store counts as gone.
    pub fn connect(address: &StoreAddress, host: String, tick: Duration) -> std::io::Result<Self> {
        let (questions, queue) = mpsc::channel(QUEUE);
        let facts = Arc::new(Facts::default());
        let teller = Teller {
            address: address.clone(),
            host,
            recent_us: recent_us(tick),
            facts: Arc::clone(&facts),
            breaker: Breaker::default(),
            clock: Clock::start(),
            link: None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        thread::Builder::new().name("store".to_owned()).spawn(move || runtime.block_on(teller.run(queue)))?;
        Ok(Self { questions, facts, runtime: handle })
    }

    /// The store of a policy, if it has one. `host` is what this start of this host is called there; made up if there is none.
    pub fn of(policy: &Policy, host: Option<&str>) -> std::io::Result<Option<Self>> {
        let Some(cluster) = policy.cluster() else { return Ok(None) };
        let host = host.map_or_else(made_up_name, ToOwned::to_owned);
        Self::connect(cluster.redis(), host, cluster.tick()).map(Some)
    }

    /// Where whatever else has to do with the store may run.
    pub(super) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// Whether it answers.
    pub fn is_up(&self) -> bool {
        self.facts.is_up.load(Ordering::Relaxed)
    }

    /// Questions that were asked, and those that had no answer.
    pub fn counts(&self) -> (u64, u64) {
        (self.facts.asked.load(Ordering::Relaxed), self.facts.failed.load(Ordering::Relaxed))
    }

    /// Asks, and waits for all answers.
    pub async fn ask(&self, inquiries: Arc<[Inquiry]>) -> Result<Vec<Told>, Unavailable> {
        self.ask_each(inquiries).await?.into_iter().collect()
    }

    /// Asks, and waits for those answers that there are.
    pub async fn ask_each(&self, inquiries: Arc<[Inquiry]>) -> Result<Answers, Unavailable> {
        if !self.is_up() {
            return Err(Unavailable);
        }
        let (answer, answered) = oneshot::channel();
        let question = Question::Take { inquiries, answer: Some(answer) };
        self.questions.try_send(question).map_err(|_| Unavailable)?;
        // The batch before may take its time, too.
        match tokio::time::timeout(2 * DEADLINE, answered).await {
            Ok(Ok(answers)) => Ok(answers),
            _ => Err(Unavailable),
        }
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
    host: String,
    recent_us: u64,
    facts: Arc<Facts>,
    breaker: Breaker,
    clock: Clock,
    link: Option<Link>,
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teller").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Teller {
    async fn run(mut self, mut queue: mpsc::Receiver<Question>) {
        let mut batch = Vec::with_capacity(BATCH);
        self.look_for_it().await;
        loop {
            tokio::select! {
                taken = queue.recv_many(&mut batch, BATCH) => match taken {
                    0 => return,
                    _ => self.serve(std::mem::take(&mut batch)).await,
                },
                () = tokio::time::sleep(PROBE), if !self.is_up() => self.look_for_it().await,
            }
        }
    }

    fn is_up(&self) -> bool {
        self.facts.is_up.load(Ordering::Relaxed)
    }

    /// Connects, if it is time to try.
    async fn look_for_it(&mut self) {
        if !self.breaker.allows(Instant::now()) {
            return;
        }
        let connected = match &mut self.link {
            Some(link) => link.mend(CONNECTING).await,
            None => Link::open(&self.address, CONNECTING).await.map(|link| self.link = Some(link)),
        };
        let answers = match (connected, &mut self.link) {
            (Ok(()), Some(link)) => link.facts(CONNECTING).await.map(|_| ()),
            (Err(error), _) => Err(error),
            (Ok(()), None) => return,
        };
        match answers {
            Ok(()) => {
                self.breaker.succeeded();
                self.facts.is_up.store(true, Ordering::Relaxed);
                log::info(format!("requests are counted with other hosts in {}", self.address));
            }
            Err(error) => self.lost(&error),
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
        self.forget(&resets).await;
        let inquiries: Vec<&Inquiry> = inquiries.iter().flat_map(|asked| asked.iter()).collect();
        let answers = self.ask(&inquiries).await;
        for (told, answer) in dealt(answers, waiting) {
            // Whoever asked may have stopped waiting.
            let _gone = answer.map(|answer| answer.send(told));
        }
    }

    /// One answer for each question.
    async fn ask(&mut self, inquiries: &[&Inquiry]) -> Answers {
        let mut answers = vec![Err(Unavailable); inquiries.len()];
        let (Some(link), true) = (&mut self.link, self.facts.is_up.load(Ordering::Relaxed)) else {
            return answers;
        };
        self.facts.asked.fetch_add(inquiries.len() as u64, Ordering::Relaxed);
        let (places, calls): (Vec<Vec<usize>>, Vec<Call<'_>>) =
            inquiry::calls(&self.host, self.recent_us, inquiries, link.is_cluster(), self.clock.now_us())
                .into_iter()
                .unzip();
        let mut failure = None;
        for (places, value) in places.iter().zip(link.run(&calls, DEADLINE).await) {
            match value.and_then(|value| inquiry::answers(&value, places.len())) {
                Ok(told) => places.iter().zip(told).for_each(|(at, told)| answers[*at] = Ok(told)),
                Err(error) => failure = Some(error),
            }
        }
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        self.facts.failed.fetch_add(failed as u64, Ordering::Relaxed);
        match failure {
            // A part of a cluster may be away: the rest goes on.
            Some(error) if failed == answers.len() || error.needs_reconnect() => self.lost(&error),
            _ => self.breaker.succeeded(),
        }
        answers
    }

    async fn forget(&mut self, keys: &[String]) {
        let Some(link) = &mut self.link else { return };
        let calls: Vec<Call<'_>> = keys.iter().map(|key| letter::reset(key)).collect();
        for error in link.run(&calls, DEADLINE).await.into_iter().filter_map(Result::err) {
            log::warning(format!("a key was not reset in the store: {error}"));
        }
    }

    fn lost(&mut self, error: &StoreError) {
        self.breaker.failed(Instant::now());
        // A connection that is gone does not come back by asking again; one that is slow may.
        if (error.needs_reconnect() || self.breaker.is_open())
            && self.facts.is_up.swap(false, Ordering::Relaxed)
        {
            log::warning(format!("requests are counted without other hosts: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_answer_shifts_no_answer_to_another_question() {
        let told = |free| Ok(Told { spent: true, wait_us: 0, granted: 0, free, nearest: 0 });
        let answers = vec![told(1), Err(Unavailable), told(3), told(4), told(5)];
        let dealt: Vec<(Answers, &str)> = dealt(answers, vec![(1, "a"), (3, "b"), (1, "c")]).collect();
        let expected =
            [(vec![told(1)], "a"), (vec![Err(Unavailable), told(3), told(4)], "b"), (vec![told(5)], "c")];
        assert_eq!(dealt, expected);
    }
}
