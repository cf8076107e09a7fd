//! `ratelimit explain`: why is this address treated as it is?

pub(super) mod words;

use std::{net::IpAddr, path::Path};

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
    explain::Explanation,
    failure::Failure,
    policy::Prefix,
    stats::talkers::Talker,
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
        let (state, service) = (&self.daemon.state, self.service);
        match self.format.output {
            Output::Json => print_json(&explanation(state, address, service)?),
            Output::Text => print(&explained(state, address, service)?),
        }
    }
}

fn explanation(state: &Path, address: IpAddr, service: Option<String>) -> Result<Box<Explanation>, Failure> {
    match ask(state, Order::Explain { address, service })? {
        Reply::Explanation(explanation) => Ok(explanation),
        other => Err(unexpected(&other)),
    }
}

/// The explanation of an address as text. The traffic of a source that is being refused is looked at for a second.
pub(super) fn explained(state: &Path, address: IpAddr, service: Option<String>) -> Result<String, Failure> {
    let explanation = explanation(state, address, service)?;
    let view = words::is_refused_lately(&explanation).then(|| ask(state, Order::Top));
    let sender = match &view {
        Some(Ok(Reply::View(view))) => sender(&view.sources, &explanation.source),
        _ => None,
    };
    Ok(words::text(&explanation, sender))
}

fn sender<'v>(senders: &'v [Talker], source: &str) -> Option<&'v Talker> {
    let wanted: Prefix = source.parse().ok()?;
    senders.iter().find(|one| one.name().parse() == Ok(wanted) && one.dropped_packets > 0)
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
