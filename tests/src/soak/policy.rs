//! The policies of a soak. They differ in much, and not in what is watched: the bounds hold whichever is in force.

use std::net::Ipv4Addr;

use crate::{fleet::Bound, netns::EDGE_V4, traffic::PORT};

use super::{
    site::SECOND_V4,
    watch::{Due, Limit, Stream},
};

/// The user whose limit both hosts share.
const USER: &str = "10.99.0.80";

/// The limit of that user.
pub(super) const OF_BOTH_HOSTS: &str = "user of both hosts";

/// The limits whose bounds are watched.
pub(super) const LIMITS: [Limit; 5] = [
    Limit { name: "source", bound: Bound { rate: 400.0, burst: 400.0 } },
    Limit { name: "source, IPv6", bound: Bound { rate: 400.0, burst: 400.0 } },
    Limit { name: OF_BOTH_HOSTS, bound: Bound { rate: 300.0, burst: 300.0 } },
    // A fixed window of a second admits its amount in each second of the clock: twice that across an edge.
    Limit { name: "window of a user", bound: Bound { rate: 50.0, burst: 100.0 } },
    Limit { name: "total of a service", bound: Bound { rate: 500.0, burst: 500.0 } },
];

/// What each sender sends, and what of it has to arrive.
pub(super) const STREAMS: [Stream; 13] = [
    Stream { name: "flood", host: 0, from: "10.99.0.66", sink: 0, pps: 3_000, due: Due::Bounded("source") },
    Stream {
        name: "IPv6 flood",
        host: 0,
        from: "fd00:99:1:1::66",
        sink: 1,
        pps: 2_000,
        due: Due::Bounded("source, IPv6"),
    },
    Stream { name: "user, here", host: 0, from: USER, sink: 0, pps: 1_000, due: Due::Bounded(OF_BOTH_HOSTS) },
    Stream {
        name: "user, there",
        host: 1,
        from: USER,
        sink: 3,
        pps: 1_000,
        due: Due::Bounded(OF_BOTH_HOSTS),
    },
    Stream {
        name: "window",
        host: 0,
        from: "10.99.0.96",
        sink: 0,
        pps: 300,
        due: Due::Bounded("window of a user"),
    },
    Stream {
        name: "total",
        host: 0,
        from: "10.98.0.2",
        sink: 2,
        pps: 350,
        due: Due::Bounded("total of a service"),
    },
    Stream {
        name: "total",
        host: 0,
        from: "10.98.0.3",
        sink: 2,
        pps: 350,
        due: Due::Bounded("total of a service"),
    },
    Stream {
        name: "total",
        host: 0,
        from: "10.98.0.4",
        sink: 2,
        pps: 350,
        due: Due::Bounded("total of a service"),
    },
    Stream {
        name: KNOWN_CLIENT,
        host: 0,
        from: KNOWN_ADDRESS,
        sink: 2,
        pps: 20,
        due: Due::Bounded("total of a service"),
    },
    Stream { name: "honest", host: 0, from: "10.99.0.2", sink: 0, pps: 100, due: Due::All },
    Stream { name: "honest, IPv6", host: 0, from: "fd00:99:2:2::2", sink: 1, pps: 100, due: Due::All },
    Stream { name: "blocked", host: 0, from: BLOCKED, sink: 0, pps: 500, due: Due::None },
    Stream { name: "blocked for hours", host: 0, from: BLOCKED_FOR_HOURS, sink: 0, pps: 200, due: Due::None },
];

/// A client of the service whose total is spent, which the host is told to know before each pollution of its memory.
pub(super) const KNOWN_CLIENT: &str = "known client";
const KNOWN_ADDRESS: &str = "10.98.0.5";
/// The service, and the prefix of addresses that it has served before they flood.
const POLLUTED: &str = "shared";
pub(super) const FORGED_WITHIN: &str = "10.98.128.0/24";
/// Addresses of that prefix.
pub(super) const FORGED_ADDRESSES: u32 = 1 << 8;

/// What the host is to know before a pollution of its memory: lines of `known import`. Those that are forged were served 100 packets/s together.
pub(super) fn known_clients() -> String {
    let (first, _) = FORGED_WITHIN.split_once('/').expect("a prefix");
    let first = first.parse::<Ipv4Addr>().expect("an address").to_bits();
    let forged = (first..first + FORGED_ADDRESSES)
        .map(|address| format!("{POLLUTED} {} 0.4 0\n", Ipv4Addr::from_bits(address)));
    forged.chain([format!("{POLLUTED} {KNOWN_ADDRESS} 100 0\n")]).collect()
}

/// Blocked by an operator, for good.
pub(super) const BLOCKED: &str = "10.99.0.13";
/// Blocked by an operator, for three hours.
pub(super) const BLOCKED_FOR_HOURS: &str = "10.99.0.14";
/// Asks over TCP while SYNs are forged.
pub(super) const CALLER: &str = "10.99.0.3";

/// What differs from policy to policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    pub(super) table_entries: u32,
    pub(super) prefilter: bool,
    /// A service more, in front of the others.
    pub(super) service: bool,
    /// Of sources, per second.
    pub(super) rate: u32,
}

impl Variant {
    pub(super) const FIRST: Self = Self { table_entries: 16_384, prefilter: true, service: false, rate: 400 };
}

/// The policy file of a host.
pub(super) fn text(variant: &Variant, host: usize, store: &str) -> String {
    let Variant { table_entries, prefilter, service, rate } = variant;
    let service = match service {
        true => {
            "[[service]]\nname = \"alpha\"\nmatch = { protocol = \"udp\", ports = [9] }\ntotal = [\"1000 packets/s\"]\n"
        }
        false => "",
    };
    format!(
        "[source]\nladder = false\ngate = {prefilter}\ntable_entries = {table_entries}\nlimits = [\"{rate} packets/s burst {rate}\"]\n{service}\
         [[service]]\nname = \"{POLLUTED}\"\nmatch = {{ protocol = \"udp\", ports = [{PORT}], destinations = [\"{SECOND_V4}\"] }}\n\
         total = [\"500 packets/s burst 500\"]\n\
         [[service]]\nname = \"web\"\nmatch = {{ protocol = \"tcp\", ports = [{PORT}], destinations = [\"{EDGE_V4}\"] }}\nsyn_cookies = \"50 syns/s\"\n\
         [[user]]\nname = \"acme\"\nsources = [\"{USER}\"]\nnetwork = [\"300 packets/s burst 300\"]\n\
         [[user]]\nname = \"window\"\nsources = [\"10.99.0.96\"]\nnetwork = [\"50 packets/s fixed-window\"]\n\
         [cluster]\nredis = \"{store}\"\nhost = \"edge-{host}\"\nhosts = 2\nreserve = \"10%\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_is_a_policy() {
        for (prefilter, service) in [(true, true), (false, false)] {
            let variant = Variant { prefilter, service, ..Variant::FIRST };
            let text = text(&variant, 0, "redis://127.0.0.1:6379");
            ratelimit_user::config::parse(&text, "soak").unwrap_or_else(|error| panic!("{error} in {text}"));
        }
    }
}
