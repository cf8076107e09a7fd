//! The address of the store as users type it: one URL for one server, Sentinels or a Redis Cluster. Pure.
//!
//! ```text
//! redis://[user[:password]@]host[:port][/db]             one server; rediss:// is the same over TLS
//! redis+unix:///path/to/socket, unix:///path             one server, over a Unix socket
//! redis+sentinel://[user[:password]@]h1[:p],h2/NAME[/db]   the master that Sentinels know as NAME
//! redis+cluster://[user[:password]@]h1[:p],h2             a Redis Cluster, through any of these nodes
//! ```
//!
//! A URL can have a user without a password: the password is then in a separate file.
//!
//! rediss+sentinel:// and rediss+cluster:// are the same over TLS. Over TLS `?ca=FILE` trusts this authority and no other, and
//! `&cert=FILE&key=FILE` sends a client certificate. Nothing switches certificate verification off.

mod parse;
pub use parse::{AddressError, without_passwords};
#[cfg(test)]
mod tests;

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

/// TCP port of a Redis server if the address names none.
pub const REDIS_PORT: u16 = 6379;
/// TCP port of a Sentinel if the address names none.
pub const SENTINEL_PORT: u16 = 26379;

/// The address of the store: server, login, database and TLS.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreAddress {
    /// One server, Sentinels or a cluster.
    pub place: StorePlace,
    /// The login at the store; `None` for the default user without a password.
    pub login: Option<StoreLogin>,
    /// The database; always 0 in a cluster.
    pub database: u32,
    /// TLS settings; `None` without TLS, and always for a Unix socket.
    pub tls: Option<Tls>,
}

/// One server, Sentinels or a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorePlace {
    /// A single server.
    Single(Endpoint),
    /// The master that these Sentinels know as `master`.
    Sentinel {
        /// At least one.
        sentinels: Vec<Endpoint>,
        /// The name that the Sentinels have for the master.
        master: String,
    },
    /// A Redis Cluster, reached through any of these nodes.
    Cluster(Vec<Endpoint>),
}

/// One listening socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Endpoint {
    /// A name or address, without brackets, and a port.
    Tcp {
        /// A name, an IPv4 or an IPv6 address.
        host: String,
        /// The TCP port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// The login at the store. The password is not in any output.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreLogin {
    /// The user of the access control list; none is the default user.
    pub user: Option<String>,
    /// The password of that user.
    pub password: Password,
}

/// A password, or the file that has it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Password {
    /// The password was in the address, or in the environment.
    Known(String),
    /// The password is the first line of this file, which is read at each login.
    InFile(PathBuf),
}

/// Files that a TLS connection to the store uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// The only authority to trust, PEM; `None` for the authorities of the system.
    pub ca: Option<PathBuf>,
    /// The client certificate to send, if the store asks for one.
    pub identity: Option<Identity>,
}

/// A client certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The certificate chain, PEM.
    pub cert: PathBuf,
    /// The private key of the certificate, PEM.
    pub key: PathBuf,
}

impl StoreAddress {
    /// The sockets to begin with: the server, the Sentinels, or the cluster nodes that were named.
    pub fn endpoints(&self) -> &[Endpoint] {
        match &self.place {
            StorePlace::Single(endpoint) => std::slice::from_ref(endpoint),
            StorePlace::Sentinel { sentinels, .. } => sentinels,
            StorePlace::Cluster(nodes) => nodes,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The URL without the password and without the names of files.
impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = if self.tls.is_some() { "rediss" } else { "redis" };
        let kind = match &self.place {
            StorePlace::Single(Endpoint::Tcp { .. }) => "",
            StorePlace::Single(Endpoint::Unix(_)) => "+unix",
            StorePlace::Sentinel { .. } => "+sentinel",
            StorePlace::Cluster(_) => "+cluster",
        };
        write!(f, "{base}{kind}://")?;
        if let Some(user) = self.login.as_ref().and_then(|login| login.user.as_ref()) {
            write!(f, "{user}@")?;
        }
        let sockets: Vec<String> = self.endpoints().iter().map(ToString::to_string).collect();
        f.write_str(&sockets.join(","))?;
        if let StorePlace::Sentinel { master, .. } = &self.place {
            write!(f, "/{master}")?;
        }
        if self.database != 0 {
            // A Unix socket's URL uses its path for the socket, so the database becomes a query parameter.
            let is_unix = matches!(self.place, StorePlace::Single(Endpoint::Unix(_)));
            write!(f, "{}{}", if is_unix { "?db=" } else { "/" }, self.database)?;
        }
        Ok(())
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreAddress({self})")
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(_) => f.write_str("Password(known)"),
            Self::InFile(path) => write!(f, "Password(in {})", path.display()),
        }
    }
}

impl fmt::Debug for StoreLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.user.as_deref().unwrap_or("default"))
    }
}
