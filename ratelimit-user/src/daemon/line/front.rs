//! The front process as the daemon has it: what it was last told, what it last reported, and the line to ask it on.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{
    asking::Asker,
    message::{FrontAnswers, FrontReport, HostAsks, PolicyText},
};
use crate::{
    control::protocol::{DecisionInfo, TestQuestion},
    daemon::state::version::PolicyVersion,
    failure::Failure,
    requests::status::RequestsStatus,
    store::round_trip::RoundTrip,
};

/// How long the front may take to answer a question.
const TO_ANSWER: Duration = Duration::from_secs(5);
/// How long the front may take to report what it has counted: whoever asks gets the last report otherwise, and attacks are looked for all the same.
const TO_REPORT: Duration = Duration::from_millis(500);
/// How long whoever has changed the policy waits until requests follow it. Packets have followed by then.
const TO_SETTLE: Duration = Duration::from_secs(2);

/// What an operator should know while there is no front.
const NOBODY_SERVES: &str = "no front process runs: requests are not answered, and the store is not reached, until another one is started";

/// The stream on which the daemon asks the front.
pub(in crate::daemon) type FrontLine = Asker<HostAsks, FrontAnswers>;

/// The front process as the daemon has it. Clones are the same one.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct Front(pub(in crate::daemon) Arc<FrontState>);

/// What the daemon and the thread that keeps the front running both know of it.
#[derive(Debug)]
pub(in crate::daemon) struct FrontState {
    /// Absent while there is no front.
    pub(in crate::daemon) line: Mutex<Option<FrontLine>>,
    /// The policy in force, and its number.
    pub(in crate::daemon) wanted: watch::Sender<(u64, Arc<PolicyText>)>,
    /// The number of the policy that the front follows.
    pub(in crate::daemon) followed: watch::Sender<u64>,
    pub(in crate::daemon) has_headroom: watch::Sender<bool>,
    /// The process; 0 before there is one.
    pub(in crate::daemon) process: AtomicU32,
    report: Mutex<FrontReport>,
    round_trip: Mutex<RoundTrip>,
}

impl Front {
    /// A front that is to be started, for this policy.
    pub(in crate::daemon) fn new(version: &PolicyVersion, round_trip: RoundTrip) -> Self {
        Self(Arc::new(FrontState {
            line: Mutex::default(),
            wanted: watch::Sender::new((1, Arc::new(text_of(version)))),
            followed: watch::Sender::new(0),
            has_headroom: watch::Sender::new(true),
            process: AtomicU32::new(0),
            report: Mutex::default(),
            round_trip: Mutex::new(round_trip),
        }))
    }

    /// Another policy is in force.
    pub(in crate::daemon) fn follow(&self, version: &PolicyVersion) {
        let text = text_of(version);
        self.0.wanted.send_if_modified(|(number, wanted)| {
            let is_another = **wanted != text;
            if is_another {
                (*number, *wanted) = (*number + 1, Arc::new(text));
            }
            is_another
        });
    }

    /// Waits until requests are decided by the policy in force, but not for long, and not for a front that is not there: the next one begins with it.
    pub(in crate::daemon) async fn settled(&self) {
        if open(&self.0.line).is_none() {
            return;
        }
        let number = self.0.wanted.borrow().0;
        let mut followed = self.0.followed.subscribe();
        let _late = tokio::time::timeout(TO_SETTLE, followed.wait_for(|followed| *followed >= number)).await;
    }

    /// Waits until there is a front that serves.
    pub(super) async fn is_there(&self) {
        let mut followed = self.0.followed.subscribe();
        let _never_ends = followed.wait_for(|number| *number > 0).await;
    }

    /// Whether the host has headroom.
    pub(in crate::daemon) fn set_headroom(&self, is_there: bool) {
        self.0.has_headroom.send_if_modified(|before| std::mem::replace(before, is_there) != is_there);
    }

    /// Whether this process is the front. The front has no business at the control socket, whatever its user may do there.
    pub(in crate::daemon) fn is(&self, process: Option<i32>) -> bool {
        let front = self.0.process.load(Ordering::Relaxed);
        process.is_some_and(|process| front != 0 && process.cast_unsigned() == front)
    }

    /// What was last counted of requests.
    pub(in crate::daemon) fn requests(&self) -> RequestsStatus {
        open(&self.0.report).requests.clone()
    }

    /// What an operator should know of the listeners.
    pub(in crate::daemon) fn warnings(&self) -> Vec<String> {
        let mut warnings = open(&self.0.report).warnings.clone();
        if open(&self.0.line).is_none() {
            warnings.push(NOBODY_SERVES.to_owned());
        }
        warnings
    }

    /// What becomes of a request; `None` if nobody answers.
    pub(in crate::daemon) async fn test(
        &self,
        question: TestQuestion,
    ) -> Option<Result<DecisionInfo, Failure>> {
        match self.ask(HostAsks::Test(question), TO_ANSWER).await? {
            FrontAnswers::Tested(tested) => Some(tested),
            _ => None,
        }
    }

    /// Asks the front for its counters.
    pub(in crate::daemon) async fn refresh(&self) {
        if let Some(FrontAnswers::Report(report)) = self.ask(HostAsks::Report, TO_REPORT).await {
            *open(&self.0.report) = *report;
        }
    }

    /// Asks; `None` if there is no front, or if it does not answer in time.
    pub(in crate::daemon) async fn ask(
        &self,
        question: HostAsks,
        patience: Duration,
    ) -> Option<FrontAnswers> {
        let line = open(&self.0.line).clone()?;
        tokio::time::timeout(patience, line.ask(question)).await.ok().flatten()
    }

    /// How long the store takes to answer, as it was last measured.
    pub(in crate::daemon) fn round_trip(&self) -> RoundTrip {
        *open(&self.0.round_trip)
    }

    /// Notes how long the store took to answer, as far as that can be.
    pub(in crate::daemon) fn measured(&self, round_trip: RoundTrip) {
        let mut known = open(&self.0.round_trip);
        *known = known.believed(round_trip);
    }
}

/// What is behind a lock, also after a panic of whoever held it.
pub(in crate::daemon) fn open<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text_of(version: &PolicyVersion) -> PolicyText {
    PolicyText {
        file: version.file().to_owned(),
        text: version.text().to_owned(),
        set: version.set().collect(),
    }
}
