//! Known clients by their names: addresses and services, and the hashes that the kernel remembers them by.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
};

use ratelimit_common::{
    abi::{self, service::NO_CLIENTS},
    limit::{clients, prefilter},
};

use crate::{
    compile::Desired,
    control::protocol::{ClientAtService, KnownPage},
    dataplane::{
        DataplaneError,
        clients::{ClientMemory, ForeignClient, FoundClient},
        probe,
    },
    explain::{RememberedClient, source_hash},
    failure::Failure,
};

/// What stands for packets of no service in exported lines. No service has this name, because the policy refuses it.
const NO_SERVICE: &str = "-";
/// The largest average that may be imported, in packets each second: more than a link has.
const MOST_PACKETS: f64 = 10_000_000.0;
/// The most mistakes that are named of one file.
const NAMED: usize = 10;
/// What is lost of an average when it is written with six decimals, at most, in 1/256 packets per step.
const ROUNDED: f64 = 0.01;
/// A claim is this many times the average.
pub(in crate::daemon) const CLAIM: f64 = 4.0;

/// The services that clients are remembered by, and how addresses are hashed.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct ClientNames {
    policy: Box<abi::Policy>,
    /// The services that remember clients and their numbers in hashes, and packets of no service.
    groups: Vec<(Option<String>, u64)>,
}

impl ClientNames {
    /// Takes the services of the policy in force.
    pub(in crate::daemon) fn of(desired: &Desired) -> Self {
        let policy = desired.policy.clone();
        let named = desired.names.services.iter().filter(|(_, name)| !name.is_empty());
        let group =
            |(at, name): (usize, &str)| Some((Some(name.to_owned()), policy.services.get(at)?.clients_group));
        let remembering = named.filter_map(group).filter(|(_, group)| *group != NO_CLIENTS);
        let groups = remembering.chain([(None, 0)]).collect();
        Self { policy, groups }
    }

    /// Returns the hash of an address at each service.
    pub(in crate::daemon) fn hashes(&self, address: IpAddr) -> impl Iterator<Item = (Option<&str>, u64)> {
        let hash = source_hash(address, &self.policy);
        self.groups.iter().map(move |(name, group)| (name.as_deref(), self.at(hash, *group)))
    }

    /// Returns what is remembered of an address at each service.
    pub(in crate::daemon) fn remembered(
        &self,
        memory: &ClientMemory,
        address: IpAddr,
    ) -> Result<Vec<ClientAtService>, DataplaneError> {
        let now_ns = probe::now_ns();
        let mut services = Vec::new();
        for (service, hash) in self.hashes(address) {
            let service = service.map(str::to_owned);
            let found = memory.find(hash, now_ns)?;
            services.extend(found.map(|found| ClientAtService { service, client: remembered_client(found) }));
        }
        Ok(services)
    }

    fn at(&self, hash: u64, group: u64) -> u64 {
        prefilter::group_hash(hash, group, self.policy.prefilter.secret)
    }

    /// Returns the services and IPv4 addresses that a remembered hash may be of. More than one, if the names of services have numbers that are alike; none if it is of IPv6.
    fn addresses(&self, hash: u64) -> impl Iterator<Item = (&str, Ipv4Addr)> {
        self.groups.iter().filter_map(move |(name, group)| {
            let address = prefilter::v4_address(hash, *group, self.policy.prefilter.secret)?;
            let address = Ipv4Addr::from(address.to_ne_bytes());
            // An address in the middle of a prefix that counts as one source is no source.
            let is_source = self.at(source_hash(address.into(), &self.policy), *group) == hash;
            is_source.then_some((name.as_deref().unwrap_or(NO_SERVICE), address))
        })
    }

    /// Returns clients as lines of text: service, address, packets each second on average, and seconds since it was last served.
    pub(in crate::daemon) fn lines(&self, known: &[ForeignClient]) -> KnownPage {
        let mut page = KnownPage::default();
        for ForeignClient { hash, seconds, average } in known {
            let packets = *average as f64 / clients::AVERAGE_OF_A_PACKET_PER_SEC;
            let mut lines = 0;
            for (service, address) in self.addresses(*hash) {
                page.lines.push_str(&format!("{service} {address} {packets:.6} {seconds}\n"));
                lines += 1;
            }
            page.clients += u64::from(lines > 0);
            page.ambiguous += u64::from(lines > 1);
            page.left_out += u64::from(lines == 0);
        }
        page
    }

    /// Reads clients from lines of text, or says what is wrong with them.
    pub(in crate::daemon) fn parse(&self, text: &str, file: &str) -> Result<Vec<ForeignClient>, Failure> {
        let groups: HashMap<&str, u64> =
            self.groups.iter().map(|(name, group)| (name.as_deref().unwrap_or(NO_SERVICE), *group)).collect();
        let (mut clients, mut mistakes) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match self.parse_line(line, &groups) {
                Ok(client) => clients.push(client),
                Err(mistake) => mistakes.push(format!("{file}:{number}: {mistake}")),
            }
        }
        if mistakes.is_empty() {
            return Ok(clients);
        }
        let more = mistakes.len().saturating_sub(NAMED);
        mistakes.truncate(NAMED);
        if more > 0 {
            mistakes.push(format!("and {more} more mistakes"));
        }
        Err(Failure::usage(format!("{}\nnothing was imported", mistakes.join("\n"))))
    }

    fn parse_line(&self, line: &str, groups: &HashMap<&str, u64>) -> Result<ForeignClient, String> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [service, address, packets, seconds] = fields[..] else {
            return Err(format!(
                "{} fields; write service, address, packets each second, and seconds since last served",
                fields.len()
            ));
        };
        let group = groups.get(service).ok_or_else(|| {
            format!("the policy has no service {service:?} that remembers clients; {NO_SERVICE} stands for packets of no service")
        })?;
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("{address:?} is no address, such as 192.0.2.1 or 2001:db8::1"))?;
        let packets = packets.parse().ok().filter(|packets| (0.0..=MOST_PACKETS).contains(packets));
        let packets: f64 = packets.ok_or_else(|| {
            format!("{:?} is no number of packets each second; use 0 to {MOST_PACKETS}", fields[2])
        })?;
        let seconds = seconds.parse().ok().filter(|seconds| *seconds <= clients::MOST_SECONDS);
        let seconds: u64 = seconds.ok_or_else(|| {
            let most = clients::MOST_SECONDS;
            format!(
                "{:?} is no number of seconds; use 0 to {most}, after which clients are forgotten",
                fields[3]
            )
        })?;
        Ok(ForeignClient {
            hash: self.at(source_hash(address, &self.policy), *group),
            seconds,
            average: packets.mul_add(clients::AVERAGE_OF_A_PACKET_PER_SEC, ROUNDED) as u64,
        })
    }
}

/// Returns whether an address is a known client at a service, or of packets for no service.
pub(in crate::daemon) fn is_known(
    desired: &Desired,
    memory: &ClientMemory,
    address: IpAddr,
    service: Option<&str>,
) -> bool {
    let policy = &desired.policy;
    let group = match service {
        Some(name) => desired.names.services.of(name).map(|at| policy.services[at].clients_group),
        None => Some(0),
    };
    let Some(group) = group.filter(|group| *group != NO_CLIENTS) else { return false };
    let hash = prefilter::group_hash(source_hash(address, policy), group, policy.prefilter.secret);
    memory.find(hash, probe::now_ns()).is_ok_and(|found| found.is_some_and(|client| client.is_known))
}

fn remembered_client(found: FoundClient) -> RememberedClient {
    let claim = if found.is_known { found.packets_per_sec * CLAIM } else { 0.0 };
    let state = if found.is_known { RememberedClient::KNOWN } else { RememberedClient::CANDIDATE };
    RememberedClient {
        state: state.to_owned(),
        seconds_since_served: found.seconds,
        packets_per_second: rounded(found.packets_per_sec),
        claim_packets_per_second: rounded(claim),
        claim_used_percent: if found.is_known { found.owed_percent } else { 0 },
    }
}

/// A number with at most six decimals.
pub(in crate::daemon) fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{compile, config, replay::FACTS};

    /// Names under a policy with services of these names.
    fn names(services: &[&str], ipv4_prefix: u8) -> ClientNames {
        let service = |(port, name): (usize, &&str)| {
            format!(
                "[[service]]\nname = {name:?}\nmatch = {{ protocol = \"udp\", ports = [{}] }}\n",
                port + 1
            )
        };
        let services: String = services.iter().enumerate().map(service).collect();
        let policy =
            format!("[source]\nlimits = [\"100 packets/s\"]\nipv4_prefix = {ipv4_prefix}\n{services}");
        let facts = compile::HostFacts { secret: [0x1234_5678_9abc_def1, 0x0fed_cba9_8765_4321], ..FACTS };
        let policy = config::parse(&policy, "p.toml").unwrap().policy;
        let desired = compile::desired(&policy, &facts, 1, None);
        ClientNames::of(&desired)
    }

    /// The clients that a memory has after it imported some: of a hash only 39 bits are remembered.
    fn remembered(clients: Vec<ForeignClient>) -> Vec<ForeignClient> {
        let cut = |hash| clients::hash_of(clients::set_index(hash), clients::tag(hash));
        clients.into_iter().map(|client| ForeignClient { hash: cut(client.hash), ..client }).collect()
    }

    #[test]
    fn exported_lines_are_those_that_were_imported() {
        let names = names(&["dns", "game"], 32);
        let text =
            "dns 192.0.2.1 5.000000 0\ngame 192.0.2.1 0.000057 69\n- 255.255.255.255 123.400000 2591\n";
        let clients = remembered(names.parse(text, "f").unwrap());
        let page = names.lines(&clients);
        let averages: Vec<u64> = clients.iter().map(|client| client.average).collect();
        assert_eq!(averages, [87_960, 1, 2_170_875], "rounded down");
        let again = names.parse(&page.lines, "f").unwrap();
        assert_eq!(remembered(again), clients);
        let words = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
        };
        assert_eq!(words(&page.lines), words(text));
        assert_eq!((page.clients, page.ambiguous, page.left_out), (3, 0, 0));
    }

    #[test]
    fn only_sources_are_exported_and_ipv6_is_left_out() {
        let names = names(&["dns"], 24);
        let clients = remembered(names.parse("dns 192.0.2.77 1 0\ndns 2001:db8:7::1 1 0\n", "f").unwrap());
        let page = names.lines(&clients);
        assert_eq!(page.lines.split(' ').nth(1), Some("192.0.2.0"));
        assert_eq!((page.clients, page.left_out), (1, 1));
    }

    #[test]
    fn services_with_numbers_that_are_alike_are_both_named() {
        // There are 127 different numbers.
        let many: Vec<String> = (0..140).map(|n| format!("s{n}")).collect();
        let names = names(&many.iter().map(String::as_str).collect::<Vec<_>>(), 32);
        let mut ambiguous = 0;
        for service in &many {
            let client = remembered(names.parse(&format!("{service} 192.0.2.1 1 0"), "f").unwrap());
            let page = names.lines(&client);
            assert!(page.lines.contains(&format!("{service} 192.0.2.1 ")), "{}", page.lines);
            // On this host, all of them are the same client.
            let again = remembered(names.parse(&page.lines, "f").unwrap());
            assert!(again.iter().all(|one| one.hash == client[0].hash), "{}", page.lines);
            ambiguous += page.ambiguous;
        }
        assert!((26..=140).contains(&ambiguous), "{ambiguous}");
    }

    #[test]
    fn a_service_that_remembers_no_clients_has_none() {
        let policy = "[source]\nlimits = [\"100 packets/s\"]\n[[service]]\nname = \"dns\"\nknown = false\n\
            match = { protocol = \"udp\", ports = [53] }\ntotal = [\"10 packets/s\"]\n";
        let policy = config::parse(policy, "p.toml").unwrap().policy;
        let names = ClientNames::of(&compile::desired(&policy, &FACTS, 1, None));
        let services: Vec<_> = names.hashes([192, 0, 2, 1].into()).map(|(service, _)| service).collect();
        assert_eq!(services, [None], "its hash would be that of packets of no service");
    }

    #[test]
    fn mistakes_are_named_with_their_lines() {
        let names = names(&["dns"], 32);
        for (line, sentence) in [
            ("dns 192.0.2.1 5", "3 fields; write service, address"),
            ("web 192.0.2.1 5 0", "the policy has no service \"web\" that remembers clients; - stands for"),
            ("dns 192.0.2.0/24 5 0", "\"192.0.2.0/24\" is no address"),
            ("dns 192.0.2.1 -5 0", "\"-5\" is no number of packets each second; use 0 to 10000000"),
            ("dns 192.0.2.1 NaN 0", "\"NaN\" is no number"),
            ("dns 192.0.2.1 inf 0", "\"inf\" is no number"),
            ("dns 192.0.2.1 5 -1", "\"-1\" is no number of seconds"),
            ("dns 192.0.2.1 5 2600000", "\"2600000\" is no number of seconds; use 0 to 2591"),
        ] {
            let text = format!("# a comment\n\n{line}\ndns 192.0.2.2 5 0\n");
            let failure = names.parse(&text, "f.txt").unwrap_err();
            assert!(failure.message.starts_with(&format!("f.txt:3: {sentence}")), "{failure}");
            assert!(failure.message.ends_with("\nnothing was imported"), "{failure}");
        }
        let failure = names.parse(&"x\n".repeat(25), "f").unwrap_err();
        assert_eq!(failure.message.lines().count(), NAMED + 2);
        assert!(failure.message.contains("and 15 more mistakes"), "{failure}");
    }
}
