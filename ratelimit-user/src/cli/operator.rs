//! Where the operator sits, so that an order that would cut them off can be refused.

use std::{env, net::IpAddr, path::Path};

use clap::Args;

use crate::{control::protocol::Operator, lockout};

/// Whether to go ahead when somebody would be cut off; every verb that can do that takes this.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Force {
    /// Go ahead even if this cuts off a live SSH session, this host or its gateway
    #[arg(long)]
    force: bool,
}

impl Force {
    /// Rather nobody is cut off.
    pub(super) const NONE: Self = Self { force: false };

    /// Who says so. sshd tells its shells where the connection comes from; on which ports it is, a command of root finds out.
    pub(super) fn operator(self) -> Operator {
        let told = ["SSH_CONNECTION", "SSH_CLIENT"].iter().find_map(|name| env::var(name).ok());
        Operator {
            origin: told.as_deref().and_then(client),
            force: self.force,
            ssh_ports: lockout::ssh_ports(Path::new("/proc")),
        }
    }
}

/// `203.0.113.7 51234 198.51.100.1 22`, or the first two words of it.
fn client(told: &str) -> Option<IpAddr> {
    let address = told.split_whitespace().next()?;
    // fe80::1%eth0: the interface is no part of the address on the wire.
    address.split('%').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_the_first_word_without_its_interface() {
        for (told, address) in [
            ("203.0.113.7 51234 198.51.100.1 22", Some("203.0.113.7")),
            ("fe80::1%eth0 51234 22", Some("fe80::1")),
            ("", None),
            ("UNKNOWN 0 22", None),
        ] {
            assert_eq!(client(told), address.map(|address| address.parse().unwrap()), "{told}");
        }
    }
}
