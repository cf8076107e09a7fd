//! The protocols of listening sockets.

use serde::{Deserialize, Serialize};

/// The protocol that is spoken on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServedProtocol {
    /// The HTTP/1.1 API.
    Http,
    /// gRPC, over HTTP/2.
    Grpc,
    /// The protocol of Redis.
    Resp,
}

impl ServedProtocol {
    /// How many protocols there are.
    pub(super) const COUNT: usize = 3;

    /// The name of the protocol in TLS (ALPN), if it has one.
    pub(super) fn in_tls(self) -> Option<&'static [u8]> {
        match self {
            Self::Http => Some(b"http/1.1"),
            Self::Grpc => Some(b"h2"),
            Self::Resp => None,
        }
    }
}
