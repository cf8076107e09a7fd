//! Looking for servers that are away: a connection says little, so each is asked for what questions ask for, and has to answer as soon.

use std::time::Duration;

use crate::{
    meter::{Bucket, Meter},
    policy::address::Endpoint,
    store::{
        account::{Ask, Counted},
        inquiry::{self, Inquiry},
        redis::{Call, Link, StoreError},
    },
};

/// Keys that are tried to find one for each server of a Redis Cluster.
const MOST_KEYS: u32 = 20_000;
/// How long a key lives that was written to see whether it can be.
const LIFE_US: u64 = 1_000_000;

/// What this host is called, and its keys.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    /// What keys in the store begin with.
    pub(super) name: String,
    /// What this start of this host is called there.
    pub(super) host: String,
    /// For how long it remembers what hosts wanted.
    pub(super) recent_us: u64,
}

/// What a search has found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) link: Link,
    /// Each server that there is a connection to, and why it is of no use.
    pub(super) probed: Vec<(Endpoint, Option<StoreError>)>,
}

/// Asks each server of a link for what questions ask for: something is written, and soon forgotten.
pub(super) async fn probed(
    mut link: Link,
    probe: &Probe,
    patience: Duration,
    deadline: Duration,
) -> Result<Found, StoreError> {
    // Versions that are too old, whatever else they do.
    link.facts(patience).await?;
    let (servers, calls): (Vec<Endpoint>, Vec<Call<'_>>) = calls(&link, probe).into_iter().unzip();
    let answers = link.run(&calls, deadline).await;
    let errors = answers.into_iter().map(|answer| answer.and_then(|value| inquiry::answers(&value, 1)).err());
    Ok(Found { probed: servers.into_iter().zip(errors).collect(), link })
}

/// One call for each server that there is a connection to.
fn calls(link: &Link, probe: &Probe) -> Vec<(Endpoint, Call<'static>)> {
    let mut missing: Vec<&Endpoint> =
        link.servers().filter(|(_, error)| error.is_none()).map(|(server, _)| server).collect();
    let mut calls = Vec::with_capacity(missing.len());
    for n in 0..MOST_KEYS {
        if missing.is_empty() {
            break;
        }
        let Some(call) = call(n, link, probe) else { break };
        let Some(server) = link.server_of(&call) else { continue };
        if let Some(nth) = missing.iter().position(|other| **other == server) {
            missing.swap_remove(nth);
            calls.push((server, call));
        }
    }
    calls
}

fn call(n: u32, link: &Link, probe: &Probe) -> Option<Call<'static>> {
    let Probe { name, host, recent_us } = probe;
    let meter = Meter::Bucket(Bucket::new(1, LIFE_US, 1));
    let asked = Inquiry {
        key: format!("{name}:{{{n}}}:probe"),
        limits: vec![Counted::plain(meter)],
        // What is given back is written down.
        ask: Ask { refund: 1, ..Ask::default() },
    };
    inquiry::calls(host, *recent_us, &[&asked], link.is_cluster(), 0).pop().map(|(_, call)| call)
}
