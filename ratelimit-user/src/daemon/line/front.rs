//! The daemon's view of the front process: the policy it was told, its last report, and the line for questions.

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
    serve::drain,
    store::round_trip::RoundTrip,
};

/// How long the front may take to answer a question.
const TO_ANSWER: Duration = Duration::from_secs(5);
/// How long the front may take to report its counters. After that the last report is used, so that a slow front does not delay the search for attacks.
const TO_REPORT: Duration = Duration::from_millis(500);
/// How long an order that changes the policy waits until the front follows the policy. Packets follow it before that.
const TO_SETTLE: Duration = Duration::from_secs(2);

/// The warning while there is no front process.
const NOBODY_SERVES: &str = "no front process runs: requests are not answered, and the store is not reached, until another one is started";

/// The stream on which the daemon asks the front.
pub(in crate::daemon) type FrontLine = Asker<HostAsks, FrontAnswers>;

/// The daemon's view of the front process. Clones share one state.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct Front(pub(in crate::daemon) Arc<FrontState>);

/// The state that the daemon shares with the thread that keeps the front running.
#[derive(Debug)]
pub(in crate::daemon) struct FrontState {
    /// The line for questions to the front; `None` while there is no front.
    pub(in crate::daemon) line: Mutex<Option<FrontLine>>,
    /// The policy in force, and its number.
    pub(in crate::daemon) wanted: watch::Sender<(u64, Arc<PolicyText>)>,
    /// The number of the policy that the front follows.
    pub(in crate::daemon) followed: watch::Sender<u64>,
    pub(in crate::daemon) has_headroom: watch::Sender<bool>,
    /// The process id of the front; 0 if it is not known.
    pub(in crate::daemon) process: AtomicU32,
    report: Mutex<FrontReport>,
    round_trip: Mutex<RoundTrip>,
}

impl Front {
    /// Makes the state for a front that is still to be started, with this policy.
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

    /// Takes over another policy, which the front will be told.
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

    /// Waits until the front follows the policy in force, for at most two seconds. Does not wait if there is no front, because the next one begins with that policy.
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

    /// Sets whether the host has headroom, which the front will be told.
    pub(in crate::daemon) fn set_headroom(&self, is_there: bool) {
        self.0.has_headroom.send_if_modified(|before| std::mem::replace(before, is_there) != is_there);
    }

    /// Whether a process is the front. The front may not use the control socket, whatever its user may do there.
    pub(in crate::daemon) fn is(&self, process: Option<i32>) -> bool {
        let front = self.0.process.load(Ordering::Relaxed);
        process.is_some_and(|process| front != 0 && process.cast_unsigned() == front)
    }

    /// Returns the counters of requests that the front last reported.
    pub(in crate::daemon) fn requests(&self) -> RequestsStatus {
        open(&self.0.report).requests.clone()
    }

    /// Returns warnings about the listeners, and about a missing front.
    pub(in crate::daemon) fn warnings(&self) -> Vec<String> {
        let mut warnings = open(&self.0.report).warnings.clone();
        if open(&self.0.line).is_none() {
            warnings.push(NOBODY_SERVES.to_owned());
        }
        warnings
    }

    /// Asks the front for the decision about a request; `None` if the front does not answer.
    pub(in crate::daemon) async fn test(
        &self,
        question: TestQuestion,
    ) -> Option<Result<DecisionInfo, Failure>> {
        match self.ask(HostAsks::Test(question), TO_ANSWER).await? {
            FrontAnswers::Tested(tested) => Some(tested),
            _ => None,
        }
    }

    /// Asks the front for its counters, and keeps the report.
    pub(in crate::daemon) async fn refresh(&self) {
        if let Some(FrontAnswers::Report(report)) = self.ask(HostAsks::Report, TO_REPORT).await {
            *open(&self.0.report) = report.within_bounds();
        }
    }

    /// Asks the front a question; `None` if there is no front, or if it does not answer in time.
    pub(in crate::daemon) async fn ask(
        &self,
        question: HostAsks,
        patience: Duration,
    ) -> Option<FrontAnswers> {
        let line = open(&self.0.line).clone()?;
        tokio::time::timeout(patience, line.ask(question)).await.ok().flatten()
    }

    /// Lets the front answer what was asked and close its connections, within seconds.
    pub(in crate::daemon) async fn drain(&self) {
        let _late = self.ask(HostAsks::Drain, drain::MOST + TO_REPORT).await;
    }

    /// Returns the round trip of the store, as it was last measured.
    pub(in crate::daemon) fn round_trip(&self) -> RoundTrip {
        *open(&self.0.round_trip)
    }

    /// Notes the round trip that the front has measured, within plausible bounds.
    pub(in crate::daemon) fn measured(&self, round_trip: RoundTrip) {
        let mut known = open(&self.0.round_trip);
        *known = known.believed(round_trip);
    }
}

/// Locks a mutex, even after a panic of a thread that held it.
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
