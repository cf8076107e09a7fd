//! Addresses that must not be cut off from this host, and changes that would cut them off.
//!
//! `discover` looks at the host; everything else is pure. Addresses on the allow list are never cut off: their packets pass
//! before blocks and limits are asked.

mod barrier;
mod discover;
mod routes;
mod session;
mod sockets;

use std::{fmt, net::IpAddr};

pub use barrier::{CutOff, PacketRules, could_cut_off, cut_off, inside};
pub use discover::{SSH_PORT, discover, ssh_ports};

/// An address that matters, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vital {
    /// The address that must not be cut off.
    pub address: IpAddr,
    /// Why the address matters.
    pub role: LockoutRole,
}

/// Why an address matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockoutRole {
    /// The far end of a connection to this host's sshd.
    SshSession {
        /// This host's address that the session is connected to.
        local: IpAddr,
        /// The port of sshd that the session is connected to.
        port: u16,
    },
    /// The address that the operator who gives an order is connected from, as their shell knows it.
    Operator,
    /// An address of this host.
    Own {
        /// The interface that has it.
        interface: String,
    },
    /// A default gateway of this host.
    Gateway,
}

impl Vital {
    /// Makes the entry of an operator connected from `address`; `None` if that is a loopback address.
    pub fn operator(address: IpAddr) -> Option<Self> {
        let address = address.to_canonical();
        (!address.is_loopback()).then_some(Self { address, role: LockoutRole::Operator })
    }
}

impl fmt::Display for Vital {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        match &self.role {
            LockoutRole::SshSession { port, .. } => {
                write!(f, "{address} has a live SSH session (to port {port})")
            }
            LockoutRole::Operator => write!(f, "you are connected from {address}"),
            LockoutRole::Own { interface } => {
                write!(f, "{address} is this host's own address (on {interface})")
            }
            LockoutRole::Gateway => write!(f, "{address} is the default gateway"),
        }
    }
}

#[cfg(test)]
mod tests;
