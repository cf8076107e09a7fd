//! The messages between the daemon and its front process.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    control::protocol::{DecisionInfo, Order, Reply, TestQuestion},
    failure::Failure,
    notify::{Posting, Undelivered},
    policy::{ListenEndpoint, address::StoreAddress},
    requests::status::RequestsStatus,
    secret_file::TokenDigest,
    serve::protocol::ServedProtocol,
    stamp::Stamp,
    store::{
        exchange::{Grant, Line, Timing},
        redis::{ServerFacts, StoreError, Value},
        round_trip::RoundTrip,
    },
};

/// A question or order of the daemon to the front.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::daemon) enum HostAsks {
    /// Tells the front to begin to serve.
    Begin(Box<Beginning>),
    /// Tells the front to follow another policy.
    Follow(PolicyText),
    /// Tells whether the host has headroom, so that elastic limits give their margin.
    Headroom(bool),
    /// Asks whether the front is there, once a second. The answer is `Done`.
    Alive,
    /// Asks for the counters of requests.
    Report,
    /// Asks for the decision about a request.
    Test(TestQuestion),
    /// Asks for the servers of the store. The front answers when it is connected to one.
    Meet,
    /// Sends lease lines and a call of gossip to the store.
    Exchange { lines: Vec<Line>, gossip: Option<GossipText>, timing: Timing, deadline: Duration },
    /// Resets store records.
    Reset { keys: Vec<String>, deadline: Duration },
    /// Tells the front to answer what was asked and to close its connections, because the daemon ends.
    Drain,
    /// Sends a message of a webhook.
    Post { posting: Box<Posting>, patience: Duration },
}

/// An answer of the front.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::daemon) enum FrontAnswers {
    Done,
    Failed(Failure),
    Report(Box<FrontReport>),
    Tested(Result<DecisionInfo, Failure>),
    Met {
        met: Result<(u64, Vec<ServerFacts>), StoreError>,
        round_trip: RoundTrip,
    },
    Exchanged {
        grants: Vec<Result<Grant, StoreError>>,
        gossip: Option<Result<StoreValue, StoreError>>,
        round_trip: RoundTrip,
    },
    WasReset(Vec<Result<(), StoreError>>),
    Posted(Result<(), Undelivered>),
}

/// A question of the front to the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::daemon) enum FrontAsks {
    /// Asks for a picture for the dashboard.
    Picture,
    /// Asks for the metrics in Prometheus' text format.
    Metrics,
    /// Passes on an order or a question of the dashboard, with the token that its operator has shown.
    Order { order: Order, from: Option<IpAddr>, token: Option<String> },
    /// Asks for the text of a file that the policy names.
    File(PathBuf),
    /// Asks for the digest of the token in a file that the policy names under this key.
    Token { key: String, file: PathBuf },
    /// Asks for the stamps of files that the policy names, which tell whether they have changed.
    Stamps(Vec<PathBuf>),
    /// Asks to block an address that was refused too often for too long.
    Offence { prefix: String, for_ns: u64, reason: String },
}

/// An answer of the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::daemon) enum HostAnswers {
    Done,
    Picture(Option<String>),
    Metrics(MetricsPage),
    Reply(Box<Reply>),
    File(Result<String, FileError>),
    Token(Result<TokenDigest, String>),
    Stamps(Vec<Stamp>),
}

/// A page of metrics, with the place that it takes in the daemon until it is written to the front.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::daemon) struct MetricsPage {
    pub(in crate::daemon) text: Result<String, String>,
    #[serde(skip)]
    _place: Option<OwnedSemaphorePermit>,
}

impl MetricsPage {
    pub(in crate::daemon) fn new(text: Result<String, String>, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { text, _place: place }
    }
}

/// The settings that the front begins with, beside the sockets themselves.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::daemon) struct Beginning {
    pub(in crate::daemon) policy: PolicyText,
    /// The store of the command line, which replaces the policy's.
    pub(in crate::daemon) redis: Option<StoreAddress>,
    /// The name of this start of this host in the store.
    pub(in crate::daemon) id: Option<String>,
    pub(in crate::daemon) has_headroom: bool,
    /// What each socket is for, in the order in which the sockets were sent.
    pub(in crate::daemon) sockets: Vec<SocketUse>,
}

/// What a socket is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::daemon) enum SocketUse {
    /// A listener for questions about requests.
    Requests(ServedProtocol, ListenEndpoint),
    /// A listener for scrapes of metrics.
    Metrics,
    /// The stream over which the daemon hands out connections to the store's socket in the file system.
    Store,
    /// A lock that is kept open as long as the front lives, so that a later daemon can see that it still runs.
    Lock,
}

/// A policy as its text and the settings made since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::daemon) struct PolicyText {
    pub(in crate::daemon) file: PathBuf,
    pub(in crate::daemon) text: String,
    pub(in crate::daemon) set: Vec<(String, String)>,
}

/// The counters and warnings of the front.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::daemon) struct FrontReport {
    pub(in crate::daemon) requests: RequestsStatus,
    /// Warnings about the listeners, as sentences.
    pub(in crate::daemon) warnings: Vec<String>,
}

/// The most warnings of each kind in a report. There are a few for each listener and each server of the store.
const MOST_WARNINGS: usize = 256;
/// The most counts of decisions in a report, one for each outcome of each API: about as many as the largest answer has room for.
const MOST_COUNTS: usize = 1 << 18;
/// The most counts of how long decisions took: one for each bound.
const MOST_TIMES: usize = 256;
/// The longest text in a report, in bytes.
const LONGEST_TEXT: usize = 4 << 10;

impl FrontReport {
    /// Returns as much of the report as any front has to report, in no more memory than that takes. `status` and metrics show all of it, and a front that was taken over might send millions of
    /// warnings.
    pub(in crate::daemon) fn within_bounds(mut self) -> Self {
        let requests = &mut self.requests;
        for warnings in [&mut self.warnings, &mut requests.store_warnings] {
            warnings.truncate(MOST_WARNINGS);
            warnings.shrink_to_fit();
            warnings.iter_mut().for_each(cut);
        }
        requests.decisions.truncate(MOST_COUNTS);
        requests.decisions.shrink_to_fit();
        for count in &mut requests.decisions {
            cut(&mut count.api);
            cut(&mut count.outcome);
        }
        requests.decision_times.counts.truncate(MOST_TIMES);
        requests.decision_times.counts.shrink_to_fit();
        if let Some(problem) = &mut requests.store_problem {
            cut(&mut problem.kind);
            cut(&mut problem.sentence);
        }
        self
    }
}

fn cut(text: &mut String) {
    let mut end = LONGEST_TEXT.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.shrink_to_fit();
}

/// A call of the gossip script.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::daemon) struct GossipText {
    pub(in crate::daemon) keys: Vec<String>,
    pub(in crate::daemon) args: Vec<String>,
}

/// Why a file was not read.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::daemon) struct FileError {
    /// The error number of the system, if there is one.
    pub(in crate::daemon) number: Option<i32>,
    pub(in crate::daemon) why: String,
}

/// An answer of the store, with the types that scripts use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::daemon) enum StoreValue {
    Nothing,
    Number(i64),
    Text(String),
    List(Vec<StoreValue>),
}

impl From<Value> for StoreValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Int(number) => Self::Number(number),
            Value::BulkString(bytes) => Self::Text(String::from_utf8_lossy(&bytes).into_owned()),
            Value::SimpleString(text) => Self::Text(text),
            Value::Array(values) => Self::List(values.into_iter().map(Self::from).collect()),
            // Our scripts answer no other types; whoever reads the answer refuses it.
            _ => Self::Nothing,
        }
    }
}

impl From<StoreValue> for Value {
    fn from(value: StoreValue) -> Self {
        match value {
            StoreValue::Nothing => Self::Nil,
            StoreValue::Number(number) => Self::Int(number),
            StoreValue::Text(text) => Self::BulkString(text.into_bytes()),
            StoreValue::List(values) => Self::Array(values.into_iter().map(Self::from).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::status::DecisionCount;

    #[test]
    fn a_report_keeps_what_a_front_has_to_report_and_no_millions_of_warnings() {
        let count = DecisionCount { api: "a".to_owned(), outcome: "allowed".to_owned(), decisions: 7 };
        let requests = RequestsStatus {
            decisions: vec![count; 20_000],
            store_warnings: vec!["slow".to_owned()],
            ..RequestsStatus::default()
        };
        let honest = FrontReport { requests, warnings: vec!["a certificate has expired".to_owned(); 100] };
        let kept = honest.clone().within_bounds();
        assert_eq!((kept.requests, kept.warnings), (honest.requests.clone(), honest.warnings.clone()));
        let mut many = honest;
        many.warnings = vec![format!("x{}", "\u{e9}".repeat(1 << 13)); 300];
        many.requests.store_warnings = vec![String::new(); 1 << 20];
        many.requests.decisions = vec![many.requests.decisions[0].clone(); MOST_COUNTS + 1];
        many.requests.decisions[0].api = "x".repeat(1 << 20);
        let kept = many.within_bounds();
        assert_eq!((kept.warnings.len(), kept.requests.store_warnings.len()), (MOST_WARNINGS, MOST_WARNINGS));
        assert!(kept.warnings.iter().all(|warning| warning.len() == LONGEST_TEXT - 1));
        assert!(kept.requests.store_warnings.capacity() <= 2 * MOST_WARNINGS);
        assert!(kept.requests.decisions[0].api.capacity() <= 2 * LONGEST_TEXT);
        assert_eq!(kept.requests.decisions.len(), MOST_COUNTS);
        assert_eq!(kept.requests.decisions[0].api.len(), LONGEST_TEXT);
    }
}
