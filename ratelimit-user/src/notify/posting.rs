//! A message of a webhook that is ready to be sent. The daemon makes it and has the secret and the files; the front process sends it and has neither.

use std::{fmt, future::Future, path::PathBuf, pin::Pin, time::Duration};

use serde::{Deserialize, Serialize};

use super::undelivered::Undelivered;
use crate::policy::WebhookUrl;

/// A POST that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posting {
    /// The address of the webhook.
    pub(super) url: WebhookUrl,
    /// The value of the header with the signature of the body, if there is a secret.
    pub(super) signature: Option<String>,
    /// The authorities whose certificates are trusted; without them, the authorities of the system.
    pub(super) authorities: Option<Authorities>,
    /// The message, as JSON.
    pub(super) body: String,
}

/// Certificates of authorities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Authorities {
    /// The file of the certificates, named in errors.
    pub(super) file: PathBuf,
    /// The text of the file, in PEM.
    pub(super) text: String,
}

/// The outcome of sending one message, as a future.
pub type Posted = Pin<Box<dyn Future<Output = Result<(), Undelivered>> + Send>>;

/// Sends messages of webhooks.
pub trait Post: fmt::Debug + Send + Sync {
    /// Sends one message, and waits for at most `patience` until the receiver has accepted it.
    fn post(&self, posting: Posting, patience: Duration) -> Posted;
}
