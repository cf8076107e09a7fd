//! `ratelimit explain`: why is this address treated as it is?

pub(super) mod words;

use std::net::IpAddr;

use clap::Args;

use super::{
    DaemonArgs, Format,
    output::{Output, print, print_json},
};
use crate::{
    control::{
        client::{ask, unexpected},
        protocol::{Order, Reply},
    },
    failure::Failure,
    policy::Prefix,
};

/// Show why an address is treated as it is: its user, its limits and what is left of them, and the lists that it is on.
///
/// For an address that was never seen, shows what would apply. Asking changes nothing.
///
/// Example: ratelimit explain 203.0.113.7
#[derive(Debug, Args)]
pub(super) struct Explain {
    /// An IPv4 or IPv6 address, such as 203.0.113.7 or 2001:db8::1
    address: String,
    /// Only this service; without it, all services that have limits
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    format: Format,
}

impl Explain {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let address = parse(&self.address)?;
        match ask(&self.daemon.state, Order::Explain { address, service: self.service })? {
            Reply::Explanation(explanation) if self.format.output == Output::Json => print_json(&explanation),
            Reply::Explanation(explanation) => print(&words::text(&explanation)),
            other => Err(unexpected(&other)),
        }
    }
}

fn parse(text: &str) -> Result<IpAddr, Failure> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address);
    }
    // Somebody who has just typed a prefix for `block add`.
    let what = match text.parse::<Prefix>() {
        Ok(_) => "is a prefix; name one address of it",
        Err(_) => "is not an address; use one",
    };
    Err(Failure::usage(format!("{text:?} {what}, such as 203.0.113.7 or 2001:db8::1")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_are_taken_and_mistakes_are_answered_with_what_would_be_right() {
        for text in ["203.0.113.7", "2001:db8::1", "::ffff:203.0.113.7"] {
            assert!(parse(text).is_ok(), "{text}");
        }
        assert_eq!(
            parse("203.0.113.0/24").unwrap_err().message,
            "\"203.0.113.0/24\" is a prefix; name one address of it, such as 203.0.113.7 or 2001:db8::1"
        );
        for text in ["", "203.0.113", "example.com", "fe80::1%eth0", "203.0.113.7/33", "203.0.113.07"] {
            let failure = parse(text).unwrap_err();
            assert_eq!(failure.code as u8, 2);
            assert!(failure.message.contains("is not an address; use one, such as"), "{}", failure.message);
        }
    }
}
