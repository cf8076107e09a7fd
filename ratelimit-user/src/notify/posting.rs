//! A message of a webhook that is ready to be sent. Who makes it has the secret and the files; who sends it talks to the network, and knows neither.

use std::{fmt, future::Future, path::PathBuf, pin::Pin, time::Duration};

use serde::{Deserialize, Serialize};

use super::undelivered::Undelivered;
use crate::policy::WebhookUrl;

/// A POST that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posting {
    /// Where it goes.
    pub(super) url: WebhookUrl,
    /// What the header with the signature of the body says, if there is a secret.
    pub(super) signature: Option<String>,
    /// Whose certificates are trusted; those whom the system trusts without it.
    pub(super) authorities: Option<Authorities>,
    /// The message, as JSON.
    pub(super) body: String,
}

/// Certificates of authorities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Authorities {
    /// The file that they are from, for what is said about them.
    pub(super) file: PathBuf,
    /// What the file says, in PEM.
    pub(super) text: String,
}

/// What becomes of a message.
pub type Posted = Pin<Box<dyn Future<Output = Result<(), Undelivered>> + Send>>;

/// Sends messages of webhooks.
pub trait Post: fmt::Debug + Send + Sync {
    /// Sends one, and waits as long for an answer that says that it was taken.
    fn post(&self, posting: Posting, patience: Duration) -> Posted;
}
