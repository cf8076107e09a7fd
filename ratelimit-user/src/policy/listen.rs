//! Where the daemon listens, and whom it believes.

use std::{fmt, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::Prefix;

/// Where the daemon listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    metrics: Option<SocketAddr>,
    /// Sources that metrics have series of, at most; 0 for none.
    pub metrics_top: u32,
    /// For questions over HTTP.
    pub http: Vec<ListenEndpoint>,
    /// For questions over gRPC.
    pub grpc: Vec<ListenEndpoint>,
    /// For questions in the protocol of Redis.
    pub resp: Vec<ListenEndpoint>,
    /// The file with the token that callers over TCP show; needed beyond loopback unless there are client certificates.
    pub token_file: Option<PathBuf>,
    /// The file with the token that operators show in the dashboard to change the lists; without it the dashboard changes nothing.
    pub operator_token_file: Option<PathBuf>,
    /// What TCP listeners speak TLS with.
    pub tls: Option<ListenTls>,
    /// Who may use sockets in the file system.
    pub socket_rights: SocketRights,
    /// The proxies whose word about the address of a caller counts.
    pub trusted_proxies: Vec<Prefix>,
}

/// Sources that metrics can have series of: each is a series of its own in every Prometheus that asks.
pub const MAX_METRICS_TOP: u32 = 100;

/// One place to listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListenEndpoint {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// Who may use sockets in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketRights {
    /// Mode of the socket file: who may write to the file may ask.
    pub mode: u32,
    /// Name or number of the group that the file is given to; the daemon's own without it.
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
    /// The chain that is shown, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// Who must have signed the certificates of callers, PEM; callers need none without it.
    pub client_ca: Option<PathBuf>,
}

impl Listen {
    /// A listener for metrics, or none, and no other.
    pub fn new(metrics: Option<SocketAddr>) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Where Prometheus may ask.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }
}

impl fmt::Display for ListenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
