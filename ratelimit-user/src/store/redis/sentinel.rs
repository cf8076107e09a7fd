//! The master that Sentinels know by a name, and that says itself that it is one.

use std::time::Duration;

use ::redis::Value;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    connection::Connection,
    dial::{Dialer, Whom},
    store_error::StoreError,
    votes::Votes,
};
use crate::{policy::address::Endpoint, store::deadline::Deadline};

/// Asks all Sentinels at once, and goes to the master that most of them name, also if it does not answer: it is the store of all other hosts. Where no
/// master has a majority, goes to the first one of those that were named that takes writes.
pub(super) async fn master(
    dialer: &Dialer,
    sentinels: &[Endpoint],
    name: &str,
    until: Deadline,
) -> Result<(Endpoint, Connection), StoreError> {
    let (votes, mut failure) = votes(dialer, sentinels, name, until).await;
    for found in votes.candidates() {
        match confirmed(dialer, &found, until).await {
            Ok(connection) => return Ok((found, connection)),
            // What the master says is more to the point than what a Sentinel says.
            Err(error) => failure = Some(error),
        }
    }
    let none = || StoreError::Unreachable { at: name.to_owned(), why: "no Sentinel is named".into() };
    Err(failure.unwrap_or_else(none))
}

/// How soon Sentinels that disagree are asked again.
const AGAIN: Duration = Duration::from_millis(50);

/// Asks Sentinels until their answer is clear. Returns their votes, and why one of them said nothing. Half of the time is kept for calling the master.
///
/// Sentinels hear of a failover one after the other, and meanwhile the wrong master may have as many votes as the right one. So Sentinels that disagree
/// are asked again for as long as there is time.
async fn votes(
    dialer: &Dialer,
    sentinels: &[Endpoint],
    name: &str,
    until: Deadline,
) -> (Votes, Option<StoreError>) {
    let patience = until.halfway();
    loop {
        let (votes, failure) = asked_once(dialer, sentinels, name, (patience, until)).await;
        let again = Instant::now() + AGAIN;
        if !votes.disagree() || again >= patience {
            return (votes, failure);
        }
        sleep_until(again).await;
    }
}

/// Asks each Sentinel once. Sentinels that have said nothing when patience ends are not waited for, if another one has answered.
async fn asked_once(
    dialer: &Dialer,
    sentinels: &[Endpoint],
    name: &str,
    (patience, until): (Instant, Deadline),
) -> (Votes, Option<StoreError>) {
    let mut answers: FuturesUnordered<_> = sentinels
        .iter()
        .map(|sentinel| async move {
            let connection = dialer.dial(sentinel, Whom::Sentinel, until).await?;
            asked(&connection, name, until).await
        })
        .collect();
    let (mut votes, mut failure) = (Votes::of(sentinels.len()), None);
    while votes.majority().is_none() {
        let answer = match votes.is_empty() {
            true => answers.next().await,
            false => timeout_at(patience, answers.next()).await.unwrap_or(None),
        };
        match answer {
            Some(Ok(master)) => votes.add(master),
            Some(Err(error)) => _ = failure.get_or_insert(error),
            None => break,
        }
    }
    (votes, failure)
}

/// Asks one Sentinel where the master is.
pub(super) async fn asked(
    connection: &Connection,
    name: &str,
    until: Deadline,
) -> Result<Endpoint, StoreError> {
    let at = connection.at().to_owned();
    let command = ::redis::cmd("SENTINEL").arg("get-master-addr-by-name").arg(name).to_owned();
    match until.hold(&at, connection.ask("SENTINEL", &command)).await? {
        Value::Nil => Err(StoreError::UnknownMaster { at, master: name.to_owned() }),
        answer => place(&answer)
            .ok_or_else(|| StoreError::Nonsense { at, why: "it does not say where the master is".into() }),
    }
}

/// Reads where a Sentinel says that the master is.
pub(super) fn place(answer: &Value) -> Option<Endpoint> {
    let Value::Array(parts) = answer else { return None };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return None };
    let host = String::from_utf8(host.clone()).ok()?;
    Some(Endpoint::Tcp { host, port: std::str::from_utf8(port).ok()?.parse().ok()? })
}

/// Connects to a server, which has to say that it is a master. A user who may not ask for the role finds out with the first write.
async fn confirmed(dialer: &Dialer, endpoint: &Endpoint, until: Deadline) -> Result<Connection, StoreError> {
    let connection = dialer.dial(endpoint, Whom::Data, until).await?;
    let at = endpoint.to_string();
    match until.hold(&at, connection.ask("ROLE", &::redis::cmd("ROLE"))).await {
        Ok(Value::Array(parts)) if parts.first() == Some(&Value::BulkString(b"master".to_vec())) => {
            Ok(connection)
        }
        Ok(_) => Err(StoreError::ReadOnly { at }),
        Err(StoreError::NoPermission { .. }) => Ok(connection),
        Err(other) => Err(other),
    }
}
