//! `[[notify]]`: the notifiers of attacks.

use std::{fmt, path::PathBuf};

use http::Uri;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::fields::{Fields, NONE, followed};

/// A notifier: a webhook or a command that is told of attacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notifier {
    /// The name in `status` and in the log.
    pub name: String,
    /// How the notifier is reached.
    pub way: NotifyWay,
    /// The occasions of which the notifier is told.
    pub on: Vec<Occasion>,
}

impl Notifier {
    /// The notifier in words, for `diff`. Only the server of a URL is shown: its path is often a secret.
    pub(super) fn fields(&self) -> Fields {
        let on = self.on.iter().copied().map(Occasion::name).collect::<Vec<_>>().join(", ");
        let file = |file: &Option<PathBuf>| {
            file.as_ref().map_or_else(|| NONE.to_owned(), |file| file.display().to_string())
        };
        match &self.way {
            NotifyWay::Webhook { url, secret_file, ca_file } => followed([
                ("on", on),
                // A hash stands for the path, so that a changed path shows in the diff but cannot be read from it.
                ("webhook", format!("{url} ({:08x})", mark(&url.path))),
                ("secret_file", file(secret_file)),
                ("ca_file", file(ca_file)),
            ]),
            NotifyWay::Command(words) => followed([("on", on), ("command", words.join(" "))]),
        }
    }
}

fn mark(path: &str) -> u32 {
    use std::hash::Hasher as _;
    let mut hasher = siphasher::sip::SipHasher13::new_with_keys(0, 0);
    hasher.write(path.as_bytes());
    hasher.finish() as u32
}

/// How a notifier is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotifyWay {
    /// An HTTP POST to a URL.
    Webhook {
        /// The URL of the webhook.
        url: WebhookUrl,
        /// The file with the secret that the body is signed with.
        secret_file: Option<PathBuf>,
        /// The authority that must have signed the server's certificate, PEM; `None` for the authorities of the system.
        ca_file: Option<PathBuf>,
    },
    /// A program and its arguments; the program reads the notification from standard input.
    Command(Vec<String>),
}

/// An occasion of which a notifier can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Occasion {
    /// An attack has begun.
    Begin,
    /// An attack goes on; told once a minute.
    Update,
    /// An attack is of another kind than it seemed, or has grown tenfold.
    Change,
    /// An attack is over.
    End,
}

impl Occasion {
    /// All occasions.
    pub const ALL: [Self; 4] = [Self::Begin, Self::Update, Self::Change, Self::End];
    /// The occasions of a notifier whose policy names none.
    pub const USUAL: [Self; 3] = [Self::Begin, Self::Change, Self::End];

    /// The word for the occasion, in a policy and in notifications.
    pub fn name(self) -> &'static str {
        match self {
            Self::Begin => "attack_begin",
            Self::Update => "attack_update",
            Self::Change => "attack_change",
            Self::End => "attack_end",
        }
    }
}

/// The URL of a webhook. Its path is often a secret, so only the server is ever shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookUrl {
    /// Whether the server is reached over TLS.
    pub tls: bool,
    /// Name or address of the server, without brackets.
    pub host: String,
    /// The TCP port of the server.
    pub port: u16,
    /// Path and query of the URL.
    pub path: String,
}

/// Why a text is not the URL of a webhook. The text itself is not repeated: it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WebhookUrlError {
    /// The text is not a URL of the web.
    #[error("webhook is no address; use one such as \"https://alerts.example/ratelimit\"")]
    NoUrl,
    /// The URL has a protocol other than `http` and `https`.
    #[error("webhook has a protocol that is not known; use http:// or https://")]
    Scheme,
    /// The URL has a user or a password.
    #[error("webhook has a user or password before the @; put a secret into secret_file")]
    Login,
}

impl WebhookUrl {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<Self, WebhookUrlError> {
        let uri: Uri = text.parse().map_err(|_| WebhookUrlError::NoUrl)?;
        let authority = uri.authority().ok_or(WebhookUrlError::NoUrl)?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) => return Err(WebhookUrlError::Scheme),
            None => return Err(WebhookUrlError::NoUrl),
        };
        if authority.as_str().contains('@') {
            return Err(WebhookUrlError::Login);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(WebhookUrlError::NoUrl);
        }
        // A colon without a valid port number behind it is an error.
        let port = match authority
            .as_str()
            .rsplit_once(']')
            .map_or(authority.as_str(), |(_, rest)| rest)
            .rsplit_once(':')
        {
            Some((_, digits)) => {
                digits.parse().ok().filter(|port| *port > 0).ok_or(WebhookUrlError::NoUrl)?
            }
            None if tls => 443,
            None => 80,
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { tls, host, port, path })
    }

    /// Name and port of the server, as in the HTTP header `Host`.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let usual = if self.tls { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        let path = if self.path == "/" { "/" } else { "/…" };
        write!(f, "{scheme}://{}{path}", self.authority())
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_their_path() {
        for (text, host, port, path, shown) in [
            (
                "https://hooks.example/services/T0/secret?x=1",
                "hooks.example",
                443,
                "/services/T0/secret?x=1",
                "https://hooks.example/…",
            ),
            ("http://127.0.0.1:8080", "127.0.0.1", 8080, "/", "http://127.0.0.1:8080/"),
            ("http://[2001:db8::1]:81/a", "2001:db8::1", 81, "/a", "http://[2001:db8::1]:81/…"),
            ("https://[::1]/", "::1", 443, "/", "https://[::1]/"),
        ] {
            let url = WebhookUrl::parse(text).unwrap();
            assert_eq!(
                (url.host.as_str(), url.port, url.path.as_str(), url.to_string().as_str()),
                (host, port, path, shown)
            );
            assert!(!format!("{url:?}").contains("secret"));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_repeated() {
        for (text, why) in [
            ("", WebhookUrlError::NoUrl),
            ("/secret", WebhookUrlError::NoUrl),
            ("hooks.example/secret", WebhookUrlError::NoUrl),
            ("http://", WebhookUrlError::NoUrl),
            ("http://a:99999/", WebhookUrlError::NoUrl),
            ("http://a:/", WebhookUrlError::NoUrl),
            ("ftp://a/secret", WebhookUrlError::Scheme),
            ("https://me:secret@a/", WebhookUrlError::Login),
        ] {
            assert_eq!(WebhookUrl::parse(text), Err(why), "{text}");
            assert!(!why.to_string().contains("secret\""), "{why}");
        }
    }
}
