//! Addresses that must not be cut off from this host, and changes that would do it.
//!
//! `discover` looks at the host; everything else is pure. What is on the allow list is never cut off: it passes before
//! blocks and limits are asked.

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
        /// This host's address that it is connected to.
        local: IpAddr,
        /// The port of sshd that it is connected to.
        port: u16,
    },
    /// Where the operator who is asking comes from, as their shell knows it.
    Operator,
    /// An address of this host.
    Own {
        /// The interface that has it.
        interface: String,
    },
    /// The way out.
    Gateway,
}

impl Vital {
    /// Where an operator comes from; nobody, if that is this host itself.
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
