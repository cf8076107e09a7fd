//! `ratelimit limit`: limits of the running policy.

use clap::{Args, Subcommand};

use super::{
    DaemonArgs, Format,
    operator::Force,
    order::order,
    output::{Output, print, print_json, table},
};
use crate::{
    control::{
        client::{ask, unexpected},
        protocol::{LimitInfo, Order, Reply},
    },
    failure::Failure,
};

/// Show or change limits of the running policy.
#[derive(Debug, Args)]
pub(super) struct LimitArgs {
    #[command(subcommand)]
    action: LimitAction,
}

#[derive(Debug, Subcommand)]
enum LimitAction {
    /// Show all limits
    ///
    /// Example: ratelimit limit list
    List {
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
    /// Show one limit, or those of a list
    ///
    /// Example: ratelimit limit get source.packets
    Get {
        /// Name of the limit or list, such as source.packets, service.dns.total or user.acme.network
        name: String,
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
    /// Change one limit, or all limits of a list, from the next packet on
    ///
    /// Lists are host.total, source, service.NAME.per_source, service.NAME.total, plan.NAME.network and user.NAME.network. One limit of a
    /// list has what it counts behind the name of the list: source.packets, service.dns.total.bytes; a second limit in packets is source.packets-2.
    ///
    /// The policy file is not touched unless --save is given; then only this limit changes in the file, and comments stay.
    ///
    /// Example: ratelimit limit set source.packets "1000 packets/s burst 2000"
    ///
    /// Quotes may be left out around one limit.
    ///
    /// Example: ratelimit limit set service.dns.per_source "200 packets/s" "1 Mbit/s"
    Set {
        /// Name of the limit or list, such as source.packets or service.dns.total
        name: String,
        /// The new limit, as in the policy file; for a list all of its limits, or the word none
        #[arg(required = true, value_name = "RATE")]
        rates: Vec<String>,
        /// Also write it into the file that the policy came from
        #[arg(long)]
        save: bool,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
}

impl LimitArgs {
    pub(super) fn execute(self) -> Result<(), Failure> {
        match self.action {
            LimitAction::List { daemon, format } => match ask(&daemon.state, Order::LimitList)? {
                Reply::Limits(limits) if format.output == Output::Json => {
                    print_json(&serde_json::json!({ "limits": limits }))
                }
                Reply::Limits(limits) => print(&text(&limits)),
                other => Err(unexpected(&other)),
            },
            LimitAction::Get { name: asked, daemon, format } => {
                match ask(&daemon.state, Order::LimitGet { name: asked.clone() })? {
                    // One limit by its own name; a list is a list, however many there are in it.
                    Reply::Limits(limits) if format.output == Output::Json => match limits.as_slice() {
                        [limit] if limit.name == asked => print_json(limit),
                        limits => print_json(&serde_json::json!({ "limits": limits })),
                    },
                    Reply::Limits(limits) if limits.is_empty() => print(&format!("{asked} has no limits\n")),
                    Reply::Limits(limits) => print(&text(&limits)),
                    other => Err(unexpected(&other)),
                }
            }
            LimitAction::Set { name, rates, save, force, daemon, format } => {
                let (operator, rate) = (force.operator(), rates_of(&rates).join(", "));
                order(&daemon.state, Order::LimitSet { name, rate, save, operator }, format.output)
            }
        }
    }
}

/// Rates, whether or not each was typed in quotes: `80 packets/s burst 90` is one, in four words. A rate begins with a number that belongs to
/// nothing before it: a burst and a margin have numbers of their own.
fn rates_of(words: &[String]) -> Vec<String> {
    let mut rates: Vec<String> = Vec::new();
    for word in words {
        let is_amount = word.starts_with(|c: char| c.is_ascii_digit()) && !word.ends_with('%');
        match rates.last_mut() {
            Some(rate) if !is_amount || rate.ends_with("burst") => {
                rate.push(' ');
                rate.push_str(word);
            }
            _ => rates.push(word.clone()),
        }
    }
    rates
}

fn text(limits: &[LimitInfo]) -> String {
    let row = |limit: &LimitInfo| {
        let from = limit.from.as_ref().map_or_else(String::new, |from| format!("from {from}"));
        vec![limit.name.clone(), limit.rate.clone(), from]
    };
    table(&["limit", "rate", ""], &limits.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_the_same_with_quotes_and_without() {
        for (words, rates) in [
            (&["80", "packets/s"][..], &["80 packets/s"][..]),
            (&["1000", "packets/s", "burst", "2000"], &["1000 packets/s burst 2000"]),
            (&["2", "MB/s", "burst", "256", "KiB", "1", "Mbit/s"], &["2 MB/s burst 256 KiB", "1 Mbit/s"]),
            (&["200 packets/s", "1 Mbit/s"], &["200 packets/s", "1 Mbit/s"]),
            (&["5/s", "soft", "10%", "100/min"], &["5/s soft 10%", "100/min"]),
            (&["5/s burst", "9"], &["5/s burst 9"]),
            (&["none"], &["none"]),
        ] {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            assert_eq!(rates_of(&words), rates, "{words:?}");
        }
    }
}
