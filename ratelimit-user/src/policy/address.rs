//! Where the store is, as users type it: one URL for one server, Sentinels or a Redis Cluster. Pure.
//!
//! ```text
//! redis://[user[:password]@]host[:port][/db]             one server; rediss:// is the same over TLS
//! redis+unix:///path/to/socket, unix:///path             one server, over a Unix socket
//! redis+sentinel://[user[:password]@]h1[:p],h2/NAME[/db]   the master that Sentinels know as NAME
//! redis+cluster://[user[:password]@]h1[:p],h2             a Redis Cluster, through any of these nodes
//! ```
//!
//! A user without a password is for who has the password apart from the address, in a file.
//!
//! rediss+sentinel:// and rediss+cluster:// are the same over TLS. Over TLS `?ca=FILE` trusts this authority and no other, and
//! `&cert=FILE&key=FILE` shows a certificate. There is no way to switch verification off.

mod parse;
pub use parse::{AddressError, without_passwords};
#[cfg(test)]
mod tests;

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

/// Where Redis listens if no port is given.
pub const REDIS_PORT: u16 = 6379;
/// Where a Sentinel listens if no port is given.
pub const SENTINEL_PORT: u16 = 26379;

/// Where the store is and how to get in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreAddress {
    /// One server, Sentinels or a cluster.
    pub place: StorePlace,
    /// The login at the store; `None` for the default user without a password.
    pub login: Option<StoreLogin>,
    /// The database; always 0 in a cluster.
    pub database: u32,
    /// Over TLS, and how; never for a Unix socket.
    pub tls: Option<Tls>,
}

/// One server, Sentinels or a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorePlace {
    /// A single server.
    Single(Endpoint),
    /// The master that these Sentinels know by this name.
    Sentinel {
        /// At least one.
        sentinels: Vec<Endpoint>,
        /// The name that the Sentinels have for the master.
        master: String,
    },
    /// A Redis Cluster; some of its nodes.
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

/// A password, or where it is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Password {
    /// The password was in the address, or in the environment.
    Known(String),
    /// The password is in the first line of this file, which is read whenever somebody logs in.
    InFile(PathBuf),
}

/// Files for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// Trust this authority instead of those of the system.
    pub ca: Option<PathBuf>,
    /// A certificate to show, and its key.
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
            // In a Unix socket's URL the path is taken, so there it is a parameter.
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
