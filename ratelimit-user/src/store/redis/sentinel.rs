//! The master that Sentinels know by a name, and that says itself that it is one.

use ::redis::Value;
use futures_util::{StreamExt as _, stream::FuturesUnordered};

use super::{
    connection::Connection,
    dial::{Dialer, Whom},
    store_error::StoreError,
};
use crate::{policy::address::Endpoint, store::deadline::Deadline};

/// Asks all Sentinels at once and goes by the first whose master takes writes: in a failover some are behind.
pub(super) async fn master(
    dialer: &Dialer,
    sentinels: &[Endpoint],
    name: &str,
    until: Deadline,
) -> Result<(Endpoint, Connection), StoreError> {
    let mut answers: FuturesUnordered<_> =
        sentinels.iter().map(|sentinel| asked(dialer, sentinel, name, until)).collect();
    let mut tried: Vec<Endpoint> = Vec::new();
    let mut failure: Option<StoreError> = None;
    while let Some(answer) = answers.next().await {
        let found = match answer {
            Ok(found) if tried.contains(&found) => continue,
            Ok(found) => found,
            Err(error) => {
                failure.get_or_insert(error);
                continue;
            }
        };
        match confirmed(dialer, &found, until).await {
            Ok(connection) => return Ok((found, connection)),
            // What the master says is more to the point than what a Sentinel says.
            Err(error) => failure = Some(error),
        }
        tried.push(found);
    }
    let none = || StoreError::Unreachable { at: name.to_owned(), why: "no Sentinel is named".into() };
    Err(failure.unwrap_or_else(none))
}

async fn asked(
    dialer: &Dialer,
    sentinel: &Endpoint,
    name: &str,
    until: Deadline,
) -> Result<Endpoint, StoreError> {
    let connection = dialer.dial(sentinel, Whom::Sentinel, until).await?;
    let at = sentinel.to_string();
    let command = ::redis::cmd("SENTINEL").arg("get-master-addr-by-name").arg(name).to_owned();
    match until.hold(&at, connection.ask("SENTINEL", &command)).await? {
        Value::Nil => Err(StoreError::UnknownMaster { at, master: name.to_owned() }),
        answer => place(&answer)
            .ok_or_else(|| StoreError::Nonsense { at, why: "it does not say where the master is".into() }),
    }
}

fn place(answer: &Value) -> Option<Endpoint> {
    let Value::Array(parts) = answer else { return None };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return None };
    let host = String::from_utf8(host.clone()).ok()?;
    Some(Endpoint::Tcp { host, port: std::str::from_utf8(port).ok()?.parse().ok()? })
}

/// A connection to it, if it is a master. A user who may not ask for the role finds out with the first write.
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
