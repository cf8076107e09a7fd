//! The target of an attack.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The target of an attack: a service, an API or the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "target", content = "name", rename_all = "snake_case")]
pub enum AttackTarget {
    /// The host: packets for no service, and for services that are not attacked by themselves.
    Host,
    /// A service, by its name.
    Service(String),
    /// An API, by its name.
    Api(String),
}

impl AttackTarget {
    /// Returns the kind of the target: `host`, `service` or `api`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Service(_) => "service",
            Self::Api(_) => "api",
        }
    }

    /// Returns the unit of what hits the target: packets or requests.
    pub fn unit(&self) -> &'static str {
        if matches!(self, Self::Api(_)) { "requests" } else { "packets" }
    }

    /// Returns the name of the service or the API; empty for the host.
    pub fn name(&self) -> &str {
        match self {
            Self::Host => "",
            Self::Service(name) | Self::Api(name) => name,
        }
    }
}

impl fmt::Display for AttackTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("the host"),
            Self::Service(name) => write!(f, "service {name}"),
            Self::Api(name) => write!(f, "api {name}"),
        }
    }
}
