//! Messages of webhooks, which the front process sends: it is the one that talks TLS and HTTP with servers elsewhere. The daemon has signed them.

use std::time::Duration;

use super::{
    front::Front,
    message::{FrontAnswers, HostAsks},
};
use crate::notify::{Post, Posted, Posting, Undelivered};

/// How much longer than the server the front process may take.
const GRACE: Duration = Duration::from_millis(500);

impl Post for Front {
    fn post(&self, posting: Posting, patience: Duration) -> Posted {
        let front = self.clone();
        Box::pin(async move {
            let posted = async {
                // A front that has ended, or has not begun yet, has a successor in a moment.
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
