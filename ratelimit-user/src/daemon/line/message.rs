//! What the daemon and its front process say to each other.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

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

/// What the daemon asks.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::daemon) enum HostAsks {
    /// Begin to serve.
    Begin(Box<Beginning>),
    /// Another policy is in force.
    Follow(PolicyText),
    /// Whether the host has headroom for what is above elastic limits.
    Headroom(bool),
    /// Are you there? Asked once a second, and answered with `Done`.
    Alive,
    /// What was counted of requests?
    Report,
    /// May this request be served?
    Test(TestQuestion),
    /// Which servers of the store are there? Waits until there is one.
    Meet,
    /// Renew leases, and say something about blocks and hosts.
    Exchange { lines: Vec<Line>, gossip: Option<GossipText>, timing: Timing, deadline: Duration },
    /// Open store records anew.
    Reset { keys: Vec<String>, deadline: Duration },
    /// Send a message of a webhook.
    Post { posting: Box<Posting>, patience: Duration },
}

/// What the front answers.
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

/// What the front asks.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::daemon) enum FrontAsks {
    /// A picture for the dashboard.
    Picture,
    /// The metrics, in Prometheus' text format.
    Metrics,
    /// An order or a question of the dashboard, with the token that its operator has shown.
    Order { order: Order, from: Option<IpAddr>, token: Option<String> },
    /// What a file says that the policy names.
    File(PathBuf),
    /// What stands for the token in a file that the policy names under this key.
    Token { key: String, file: PathBuf },
    /// Whether files that the policy names have changed.
    Stamps(Vec<PathBuf>),
    /// Block an address that was refused too often for too long.
    Offence { prefix: String, for_ns: u64, reason: String },
}

/// What the daemon answers.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::daemon) enum HostAnswers {
    Done,
    Picture(Option<String>),
    Metrics(Result<String, String>),
    Reply(Box<Reply>),
    File(Result<String, FileError>),
    Token(Result<TokenDigest, String>),
    Stamps(Vec<Stamp>),
}

/// Everything that the front begins with, beside the sockets themselves.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::daemon) struct Beginning {
    pub(in crate::daemon) policy: PolicyText,
    /// The store of the command line, instead of the policy's.
    pub(in crate::daemon) redis: Option<StoreAddress>,
    /// What this start of this host is called in the store.
    pub(in crate::daemon) id: Option<String>,
    pub(in crate::daemon) has_headroom: bool,
    /// What is spoken on each socket, in the order in which they were sent.
    pub(in crate::daemon) sockets: Vec<SocketUse>,
}

/// What a socket is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::daemon) enum SocketUse {
    /// Questions about requests.
    Requests(ServedProtocol, ListenEndpoint),
    /// Metrics for Prometheus.
    Metrics,
    /// The way to connections to the store's socket in the file system, which the daemon opens.
    Store,
    /// Nothing: it is kept open as long as the process lives, so that others can see that it does.
    Lock,
}

/// A policy as the daemon has it: a text, and what was set since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::daemon) struct PolicyText {
    pub(in crate::daemon) file: PathBuf,
    pub(in crate::daemon) text: String,
    pub(in crate::daemon) set: Vec<(String, String)>,
}

/// What the front has counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::daemon) struct FrontReport {
    pub(in crate::daemon) requests: RequestsStatus,
    /// What an operator should know of the listeners, as sentences.
    pub(in crate::daemon) warnings: Vec<String>,
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
    /// The kernel's number for it.
    pub(in crate::daemon) number: Option<i32>,
    pub(in crate::daemon) why: String,
}

/// An answer of the store, as far as scripts give any.
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
            // No script of ours answers anything else; who reads the answer says so.
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
