//! Asks Sentinels again and again whether the master is still the one in use.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::sync::Mutex;

use super::{
    connection::Connection,
    dial::{Dialer, Whom},
    sentinel::asked,
    store_error::StoreError,
    votes::Votes,
};
use crate::{policy::address::Endpoint, store::deadline::Deadline};

/// Connections to Sentinels, kept from one question to the next.
#[derive(Debug, Default)]
pub(super) struct SentinelWatch(Mutex<BTreeMap<Endpoint, Connection>>);

impl SentinelWatch {
    /// Whether most Sentinels name a master that is not `ours`. A Sentinel that does not answer has no vote, and is called anew the next time.
    pub(super) async fn names_another(
        &self,
        dialer: &Dialer,
        sentinels: &[Endpoint],
        name: &str,
        ours: impl Fn(&Endpoint) -> bool,
        until: Deadline,
    ) -> bool {
        let mut open = self.0.lock().await;
        let mut answers: FuturesUnordered<_> = sentinels
            .iter()
            .map(|sentinel| {
                let known = open.remove(sentinel).filter(|connection| !connection.is_closed());
                async move {
                    let connection = match known {
                        Some(connection) => connection,
                        None => dialer.dial(sentinel, Whom::Sentinel, until).await?,
                    };
                    let master = asked(&connection, name, until).await?;
                    Ok::<_, StoreError>((sentinel.clone(), connection, master))
                }
            })
            .collect();
        let mut votes = Votes::of(sentinels.len());
        while let Some(answer) = answers.next().await {
            let Ok((sentinel, connection, master)) = answer else { continue };
            open.insert(sentinel, connection);
            votes.add(master);
            // Sentinels that have not answered yet cannot change the majority, and the old master takes writes meanwhile.
            if votes.majority().is_some_and(|master| !ours(master)) {
                return true;
            }
        }
        false
    }
}
