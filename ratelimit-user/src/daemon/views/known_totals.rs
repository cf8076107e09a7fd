//! What totals leave known clients beside a flood, and what these clients are served on average.
//!
//! A hash says exactly of IPv4 clients which service they are of, unless the names of two services have numbers that are alike: then both have the clients of both. Of IPv6 clients it
//! says nothing. They count for the total of the host, and for a service that is the only one with known clients. Clients of a service that has left the policy count for these two
//! until they are forgotten.

use ratelimit_common::{
    abi::{
        Meter,
        service::{KNOWN_PARTS, NO_CLIENTS},
    },
    limit::{clients, rate::Rate},
};

use crate::{
    compile::Desired,
    control::protocol::TotalOfClients,
    daemon::{
        host::Host,
        orders::clients::{CLAIM, rounded},
    },
    dataplane::clients::KnownClients,
    policy::{Policy, Service},
};

/// Returns the totals in packets that known clients come first under.
pub(in crate::daemon) fn of(host: &Host, known: &KnownClients) -> Vec<TotalOfClients> {
    totals(host.policy(), &host.enforced.desired, known)
}

/// Returns what the total leaves known clients that leaves them least, as a sentence; `None` if no total has known clients.
pub(in crate::daemon) fn tightest(host: &Host) -> Option<String> {
    let totals = of(host, &host.clients().counted()).into_iter();
    let fit = |total: &TotalOfClients| total.claims_fit.unwrap_or(f64::INFINITY);
    let least = totals.min_by(|one, other| fit(one).total_cmp(&fit(other)))?;
    Some(format!(
        "{} leaves them {} packets/s beside a flood, {:.1} times their average",
        whose(&least),
        short(least.left_packets_per_second),
        least.claims_fit? * CLAIM
    ))
}

/// Returns a warning for each total that leaves known clients less than they are served on average.
pub(in crate::daemon) fn warnings(host: &Host) -> Vec<String> {
    of(host, &host.clients().counted()).iter().filter_map(warning).collect()
}

fn warning(total: &TotalOfClients) -> Option<String> {
    let part = total.claims_fit? * CLAIM;
    let words = || {
        format!(
            "known clients of {} are served {} packets/s on average, more than its total leaves them beside a flood ({}): then they get {:.0} % of it",
            whose(total),
            short(total.served_packets_per_second),
            short(total.left_packets_per_second),
            (part * 100.0).floor()
        )
    };
    (part < 1.0).then(words)
}

fn whose(total: &TotalOfClients) -> String {
    total.service.as_ref().map_or_else(|| "the host".to_owned(), |name| format!("service {name}"))
}

/// A number without decimals that say nothing.
fn short(number: f64) -> String {
    if number < 10.0 { format!("{number:.2}") } else { format!("{number:.0}") }
}

fn totals(policy: &Policy, desired: &Desired, known: &KnownClients) -> Vec<TotalOfClients> {
    let host = policy.host().totals();
    let with_clients =
        |one: &&Service| one.remembers_clients() && !(host.is_empty() && one.totals().is_empty());
    let is_alone = host.is_empty() && policy.services().iter().filter(with_clients).count() == 1;
    let served_at = |service: &Service| {
        let at = desired.names.services.of(service.name())?;
        let group = desired.policy.services[at].clients_group;
        let number = clients::service_number(group);
        (group != NO_CLIENTS).then(|| known.by_number.get(number).copied().unwrap_or(0.0))
    };
    let of_service = |service: &Service| {
        let served = if is_alone { known.packets_per_sec } else { served_at(service).unwrap_or(0.0) };
        total(Some(service.name()), service.totals(), service.known_parts(), served)
    };
    let of_host = total(None, host, KNOWN_PARTS, known.packets_per_sec);
    of_host.into_iter().chain(policy.services().iter().filter(with_clients).filter_map(of_service)).collect()
}

/// A total in packets; `None` if none of these rates counts packets.
fn total(service: Option<&str>, rates: &[Rate], known_parts: u64, served: f64) -> Option<TotalOfClients> {
    let rate = rates.iter().find(|rate| rate.meter == Meter::Packets)?;
    let rate = rate.amount as f64 * 1e9 / rate.period.ns() as f64;
    let left = rate * known_parts as f64 / (known_parts + 1) as f64;
    Some(TotalOfClients {
        service: service.map(str::to_owned),
        packets_per_second: rounded(rate),
        left_packets_per_second: rounded(left),
        served_packets_per_second: rounded(served),
        claims_fit: (served > 0.0).then(|| rounded(left / (served * CLAIM))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{compile, config, replay::FACTS};

    const DNS: &str = "[[service]]\nname = \"dns\"\nmatch = { protocol = \"udp\", ports = [53] }\n\
        total = [\"2000 packets/s\"]\n";
    const GAME: &str = "[[service]]\nname = \"game\"\nmatch = { protocol = \"udp\", ports = [9] }\n\
        total = [\"1600 packets/s\"]\nnewcomers = \"1/16\"\n";

    /// The totals of a policy, where IPv4 clients of dns are served so much, and others (of IPv6, or of services that are gone) the rest.
    fn of(services: &str, dns: f64, others: f64) -> Vec<TotalOfClients> {
        let text = format!("[source]\nlimits = [\"100 packets/s\"]\n{services}");
        let policy = config::parse(&text, "p.toml").unwrap().policy;
        let desired = compile::desired(&policy, &FACTS, 1, None);
        let group = |name| desired.policy.services[desired.names.services.of(name).unwrap()].clients_group;
        let mut by_number = vec![0.0; clients::SERVICE_NUMBERS];
        by_number[clients::service_number(group("dns"))] = dns;
        by_number[0] = others;
        let known = KnownClients { packets_per_sec: dns + others, by_number, ..KnownClients::default() };
        totals(&policy, &desired, &known)
    }

    #[test]
    fn clients_count_for_the_total_of_their_service() {
        let alone = of(DNS, 100.0, 25.0);
        assert_eq!((alone[0].left_packets_per_second, alone[0].claims_fit), (1_750.0, Some(3.5)));
        let two = of(&format!("{DNS}{GAME}"), 100.0, 25.0);
        assert_eq!(two[0].claims_fit, Some(4.375), "others may be of another service");
        assert_eq!((two[1].left_packets_per_second, two[1].claims_fit), (1_500.0, None));
        let host = of(&format!("[host]\ntotal = [\"1000 packets/s\"]\n{DNS}"), 100.0, 25.0);
        assert_eq!((host[0].service.as_deref(), host[0].claims_fit), (None, Some(1.75)));
        assert_eq!(host[1].claims_fit, Some(4.375));
        let without = of(&DNS.replace("total = ", "known = false\ntotal = "), 100.0, 0.0);
        assert!(without.is_empty(), "it remembers no clients");
    }

    #[test]
    fn averages_beyond_what_a_total_leaves_are_a_warning() {
        assert_eq!(warning(&of(DNS, 1_750.0, 0.0)[0]), None);
        assert_eq!(
            warning(&of(DNS, 2_100.0, 0.0)[0]).unwrap(),
            "known clients of service dns are served 2100 packets/s on average, more than its total leaves them beside a flood (1750): then they get 83 % of it"
        );
    }
}
