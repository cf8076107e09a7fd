//! What must hold for any bytes at all. Each target reads bytes as an outsider would send them and panics if a promise is broken.
//!
//! `cargo xtask fuzz` runs them under libFuzzer; `fuzz/corpus.rs` runs the corpus and some thousand mutations of it with every other test.

pub mod answers;
#[cfg(test)]
mod corpus;
pub mod packets;
mod questions;
mod replies;
mod reply;

use std::sync::Arc;

use ratelimit_common::limit::{
    lifetime::parse_lifetime,
    text::{parse_limit, parse_rate},
};
use ratelimit_user::{
    compile::{
        self, Before,
        lists::{self, Lists},
    },
    config::{self, Loaded, Reader, edit},
    control::{protocol::Reply, server},
    policy::{LimitList, Policy, Prefix, changes::changes},
    serve::resp::{
        check::{CheckWords, Parts, RespCheck},
        frame::{self, Arguments, MAX_FRAME},
        throttle::{self, Dialect},
    },
};

use crate::policies::FACTS;

/// One way into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The text of a policy file. Behind a line of [`NEXT`] comes another text, read after the first.
    Policy,
    /// A request over the control socket, or a reply.
    Protocol,
    /// What is typed on the command line: rates, lifetimes, prefixes.
    Text,
    /// What a client of Redis sends.
    Resp,
    /// Frames, for the packet path on tables in memory: see [`packets::frames`].
    Packets,
    /// Frames, for the programs that answer, reject and mark them: see [`answers::Input`].
    Answers,
    /// A file of tcpdump's.
    Capture,
    /// A question over HTTP: query, header fields and body.
    Http,
    /// A message of Envoy's.
    Grpc,
    /// Answers of a Redis that may say anything.
    Store,
    /// A file of the state directory.
    State,
    /// What a front process says to the daemon, which has the rights.
    Front,
}

/// The line that separates two texts of one input.
pub const NEXT: &str = "\n#-- next --\n";

impl Target {
    /// Every target of the fuzzer.
    pub const ALL: [Self; 12] = [
        Self::Policy,
        Self::Protocol,
        Self::Text,
        Self::Resp,
        Self::Packets,
        Self::Answers,
        Self::Capture,
        Self::Http,
        Self::Grpc,
        Self::Store,
        Self::State,
        Self::Front,
    ];

    /// As it is typed; also the directory of its corpus.
    pub fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Protocol => "protocol",
            Self::Text => "text",
            Self::Resp => "resp",
            Self::Packets => "packets",
            Self::Answers => "answers",
            Self::Capture => "capture",
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Store => "store",
            Self::State => "state",
            Self::Front => "front",
        }
    }

    /// The target of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name)
    }

    /// Tries one input. Panics if a promise is broken.
    pub fn run(self, bytes: &[u8]) {
        match (self, std::str::from_utf8(bytes)) {
            (Self::Policy, Ok(text)) => policies(text),
            (Self::Protocol, _) => protocol(bytes),
            (Self::Text, Ok(text)) => typed(text),
            (Self::Resp, _) => requests(bytes),
            (Self::Packets, _) => packets::run(bytes),
            (Self::Answers, _) => answers::run(bytes),
            (Self::Capture, _) => replies::capture(bytes),
            (Self::Http, _) => questions::http(bytes),
            (Self::Grpc, _) => questions::grpc(bytes),
            (Self::Store, _) => replies::store(bytes),
            (Self::State, _) => replies::state(bytes),
            (Self::Front, _) => replies::front(bytes),
            // Refused before anybody looks at it.
            (Self::Policy | Self::Text, Err(_)) => {}
        }
    }
}

/// One text after another: a reader that knows the one before says the same as one that knows nothing and takes no shortcut.
fn policies(text: &str) {
    let mut reader = Reader::default();
    let mut before: Option<Policy> = None;
    for text in text.split(NEXT) {
        let quick = reader.parse(&Arc::from(text), "p.toml");
        let thorough = config::parse_whole(text, "p.toml");
        match (quick, thorough) {
            (Ok(quick), Ok(thorough)) => {
                assert_eq!(quick, thorough, "read differently");
                accepted(text, &quick, before.as_ref());
                before = Some(quick.policy);
            }
            (Err(quick), Err(thorough)) => assert_eq!(quick.to_string(), thorough.to_string()),
            (quick, thorough) => panic!("{:?}, but {:?}", quick.map(drop), thorough.map(drop)),
        }
        // Also of a text that is no policy.
        let _maybe_refused = edit::set_list(text, &LimitList::Source, &["7 packets/s".to_owned()]);
        let _maybe_refused = edit::set_plan(text, "a", "gold");
    }
}

/// Every policy that is accepted compiles, alone and after another one, and writes what it should.
fn accepted(text: &str, loaded: &Loaded, before: Option<&Policy>) {
    let policy = &loaded.policy;
    let desired = compile::desired(policy, &FACTS, 1, None);
    assert!(desired.policy.source.set.limit_count >= 1, "a source without limits");
    let prefixes: usize = policy.users().iter().map(|user| user.sources().len()).sum();
    assert_eq!(desired.user_prefixes().count(), prefixes);
    let written = lists::with_users(Lists::new(), desired.user_prefixes());
    assert_eq!(written.len(), prefixes, "every prefix is somebody's, and one's only");
    assert_eq!(changes(policy, policy), []);
    if let Some(before) = before {
        let old = compile::desired(before, &FACTS, 1, None);
        let old_lists = lists::with_users(Lists::new(), old.user_prefixes());
        let in_force = Before::known(&old.policy, &old, 0);
        let next = compile::desired(policy, &FACTS, 2, Some(in_force));
        let wanted = lists::with_users(old_lists.clone(), next.user_prefixes());
        let edits = lists::user_edits(&old_lists, Some(&old.user_sources), &next.user_sources);
        assert_eq!(lists::edited(&old_lists, &edits), lists::changes(&old_lists, &wanted));
        let (there, back) = (changes(before, policy), changes(policy, before));
        assert_eq!(there.is_empty(), back.is_empty());
    }
    edited(text, policy);
}

/// Limits that are written into a file are what it says then, and nothing else is different.
fn edited(text: &str, policy: &Policy) {
    let rate = parse_rate("7 packets/s burst 9").expect("a rate");
    let users = policy.users().iter().map(|user| LimitList::User(user.name().to_owned()));
    for list in users.take(2).chain([LimitList::Source]) {
        let text = edit::set_list(text, &list, &[rate.to_string()]).expect("a policy can be edited");
        let Ok(after) = config::parse(&text, "p.toml") else { continue };
        assert_eq!(after.policy.rates(&list), [rate], "{list:?} in\n{text}");
        let subject = match &list {
            LimitList::User(name) => format!("user {name}"),
            _ => "limit source".to_owned(),
        };
        for change in changes(policy, &after.policy) {
            assert!(change.subject.starts_with(&subject), "{change} because of {list:?} in\n{text}");
        }
    }
}

/// What is understood can be said again.
fn protocol(bytes: &[u8]) {
    if let Ok(request) = server::understand(bytes) {
        let line = serde_json::to_vec(&request).expect("a request can be written");
        assert_eq!(server::understand(&line).expect("and understood"), request);
    }
    if let Ok(reply) = serde_json::from_slice::<Reply>(bytes) {
        let line = serde_json::to_vec(&reply).expect("a reply can be written");
        assert_eq!(serde_json::from_slice::<Reply>(&line).expect("and understood"), reply);
    }
}

/// What is shown can be typed again, and means the same.
fn typed(text: &str) {
    if let Ok(rate) = parse_rate(text) {
        assert_eq!(parse_rate(&rate.to_string()).expect("a rate as it is shown"), rate);
    }
    if let Ok((rate, _)) = parse_limit(text) {
        assert_eq!(parse_limit(&rate.to_string()).expect("a limit as it is shown").0, rate);
    }
    if let Ok(prefix) = text.parse::<Prefix>() {
        assert_eq!(prefix.to_string().parse::<Prefix>().expect("a prefix as it is shown"), prefix);
    }
    let _maybe_refused = parse_lifetime(text);
}

/// Requests are read alike however they are cut, and whatever is in them is a question or a sentence.
fn requests(bytes: &[u8]) {
    let (mut at, mut arguments) = (0, Arguments::default());
    while let Ok(Some(length)) = frame::parse(&bytes[at..], &mut arguments) {
        assert!((1..=MAX_FRAME).contains(&length), "a request of {length} bytes");
        for part in 0..length {
            let mut fewer = Arguments::default();
            let cut = frame::parse(&bytes[at..at + part], &mut fewer);
            assert!(matches!(cut, Ok(None)), "{part} bytes of a request of {length} are {cut:?}");
        }
        for words in [CheckWords::All, CheckWords::Keys] {
            let _maybe_refused = RespCheck::parse(&arguments, words, &mut Parts::new());
        }
        for dialect in [Dialect::Cell, Dialect::Crab] {
            let _maybe_refused = throttle::question(dialect, arguments.get(1..).unwrap_or_default());
        }
        at += length;
    }
}
