//! Sends messages of webhooks through the front process, which talks TLS and HTTP with other servers. The daemon has signed the messages.

use std::time::Duration;

use super::{
    front::Front,
    message::{FrontAnswers, HostAsks},
};
use crate::notify::{Post, Posted, Posting, Undelivered};

/// How much longer than the patience with the server the front process may take to answer.
const GRACE: Duration = Duration::from_millis(500);

impl Post for Front {
    fn post(&self, posting: Posting, patience: Duration) -> Posted {
        let front = self.clone();
        Box::pin(async move {
            let posted = async {
                // If there is no front at the moment, the next one begins soon.
                front.is_there().await;
                let question = HostAsks::Post { posting: Box::new(posting), patience };
                front.ask(question, patience + GRACE).await
            };
            match tokio::time::timeout(patience + 2 * GRACE, posted).await {
                Ok(Some(FrontAnswers::Posted(posted))) => posted.map_err(Undelivered::believed),
                _ => Err("the front process, which sends it, does not answer".to_owned().into()),
            }
        })
    }
}
