//! The listeners of the daemon: sockets, tokens, certificates and trusted proxies.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    Prefix,
    fields::{Fields, followed, restarted, words},
};

/// The listeners of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    metrics: Option<SocketAddr>,
    /// How many sources have metric series of their own, at most; 0 for none.
    pub metrics_top: u32,
    /// Endpoints for questions over HTTP.
    pub http: Vec<ListenEndpoint>,
    /// Endpoints for questions over gRPC.
    pub grpc: Vec<ListenEndpoint>,
    /// Endpoints for questions in the protocol of Redis (RESP).
    pub resp: Vec<ListenEndpoint>,
    /// The file with the token that callers over TCP present; required beyond loopback unless there are client certificates.
    pub token_file: Option<PathBuf>,
    /// The file with the token that operators present in the dashboard to change the lists; without it the dashboard is read-only.
    pub operator_token_file: Option<PathBuf>,
    /// TLS settings of TCP listeners.
    pub tls: Option<ListenTls>,
    /// The users who may use sockets in the file system.
    pub socket_rights: SocketRights,
    /// The proxies that are trusted to name the address of a caller.
    pub trusted_proxies: Vec<Prefix>,
}

/// The largest `metrics_top`: each source is a series of its own in every Prometheus that scrapes.
pub const MAX_METRICS_TOP: u32 = 100;

/// One listening endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListenEndpoint {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A Unix socket in the file system.
    Unix(PathBuf),
}

/// The users who may use sockets in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketRights {
    /// Mode of the socket file. Whoever may write to the file may ask questions.
    pub mode: u32,
    /// Name or number of the socket file's group; `None` for the daemon's own group.
    pub group: Option<String>,
}

impl Default for SocketRights {
    fn default() -> Self {
        Self { mode: 0o660, group: None }
    }
}

/// Certificates of listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenTls {
    /// The certificate chain that the listener sends, PEM.
    pub certificate: PathBuf,
    /// The private key of the certificate, PEM.
    pub key: PathBuf,
    /// The authority that must have signed the certificates of callers, PEM; `None` if callers need no certificate.
    pub client_ca: Option<PathBuf>,
}

impl Listen {
    /// The token files of programs and of operators, if both are named.
    pub fn both_tokens(&self) -> Option<(&Path, &Path)> {
        self.token_file.as_deref().zip(self.operator_token_file.as_deref())
    }

    /// A listener for metrics, or none, and no other listeners.
    pub fn new(metrics: Option<SocketAddr>) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// The endpoint for Prometheus.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// The listeners in words, for `diff`. A running daemon keeps its sockets; trusted proxies follow the policy at once.
    pub(super) fn fields(&self) -> Fields {
        let metrics: Vec<_> = self.metrics.into_iter().collect();
        let token_file: Vec<_> = self.token_file.iter().map(|path| path.display()).collect();
        let operator_token_file: Vec<_> =
            self.operator_token_file.iter().map(|path| path.display()).collect();
        let tls: Vec<_> = self.tls.iter().map(certificates).collect();
        let socket_group: Vec<_> = self.socket_rights.group.iter().collect();
        let mut fields = restarted([
            ("http", all(&self.http)),
            ("grpc", all(&self.grpc)),
            ("resp", all(&self.resp)),
            ("metrics", all(&metrics)),
            ("token_file", all(&token_file)),
            ("operator_token_file", all(&operator_token_file)),
            ("tls", all(&tls)),
            ("socket_mode", format!("{:04o}", self.socket_rights.mode)),
            ("socket_group", all(&socket_group)),
        ]);
        fields.extend(followed([
            ("trusted_proxies", all(&self.trusted_proxies)),
            ("metrics_top", self.metrics_top.to_string()),
        ]));
        fields
    }
}

fn certificates(tls: &ListenTls) -> String {
    let of_callers =
        tls.client_ca.as_ref().map_or_else(String::new, |ca| format!(", client_ca {}", ca.display()));
    format!("certificate {}, key {}{of_callers}", tls.certificate.display(), tls.key.display())
}

/// The things in words, sorted, so that the order in the file does not matter.
fn all<T: fmt::Display>(things: &[T]) -> String {
    let mut texts: Vec<String> = things.iter().map(ToString::to_string).collect();
    texts.sort();
    words(&texts)
}

impl fmt::Display for ListenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
