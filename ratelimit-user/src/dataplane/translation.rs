//! Finds the TCP ports whose packets rules of nftables send elsewhere: dnat, redirect and tproxy, written by nft or by iptables-nft.
//!
//! The rules that a packet meets before it is routed are followed through jumps and verdict maps. Conditions on the protocol, the destination port
//! and the destination address are understood, and every other condition counts as met. So a port that is not found is translated by no rule, and a port
//! that is found may be.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    ops::RangeInclusive,
};

use super::generic_netlink::{attributes, find};

/// Chains refer to each other at most 16 deep, which the kernel checks.
const MAX_DEPTH: usize = 32;
/// Rules that are followed at most. Where there are more, every port counts as translated.
const MAX_STEPS: usize = 1_000_000;

/// Address families of nftables (linux/netfilter.h).
pub(super) const INET: u8 = 1;
pub(super) const IPV4: u8 = 2;
pub(super) const IPV6: u8 = 10;

/// Numbers from the first to the last.
type MatchedSpan = (u128, u128);

/// The ports of TCP.
const ALL_PORTS: MatchedSpan = (0, u16::MAX as u128);
const TCP: u128 = 6;

/// A chain: the family and the name of its table, and its name.
pub(super) type ChainName = (u8, String, String);

/// The rules of all tables that packets of IP meet.
#[derive(Debug, Default)]
pub(super) struct Ruleset {
    /// The chains that packets enter before they are routed.
    pub(super) entrances: Vec<ChainName>,
    /// The rules of each chain, as lists of expressions in the kernel's form.
    pub(super) rules: HashMap<ChainName, Vec<Vec<u8>>>,
}

/// An element of a set or a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SetElement {
    /// The key in network order; empty for the element that stands for all others.
    pub(super) key: Vec<u8>,
    /// Whether this is the first key behind an interval.
    pub(super) is_end: bool,
    /// The chain that a verdict map leads to.
    pub(super) chain: Option<String>,
}

/// Reads an element.
pub(super) fn element(bytes: &[u8]) -> SetElement {
    const KEY: u16 = 1;
    const DATA: u16 = 2;
    const FLAGS: u16 = 3;
    const INTERVAL_END: u32 = 1;
    let key = find(bytes, KEY).and_then(|key| find(key, VALUE)).unwrap_or_default().to_vec();
    let is_end = number(bytes, FLAGS).is_some_and(|flags| flags & INTERVAL_END != 0);
    SetElement { key, is_end, chain: find(bytes, DATA).and_then(target_of) }
}

/// Finds the TCP ports whose packets to one of the host's own addresses may be translated. `elements` reads a set of a table.
pub(super) fn ports(
    rules: &Ruleset,
    own: &[IpAddr],
    elements: impl FnMut(&ChainName, &str) -> Option<Vec<SetElement>>,
) -> Vec<RangeInclusive<u16>> {
    let mut search = Search { rules, own, elements, found: Vec::new(), steps: 0 };
    for entrance in &rules.entrances {
        search.follow(entrance, &[ALL_PORTS], 0);
    }
    search.found.iter().map(|(first, last)| *first as u16..=*last as u16).collect()
}

struct Search<'r, F> {
    rules: &'r Ruleset,
    own: &'r [IpAddr],
    elements: F,
    found: Vec<MatchedSpan>,
    steps: usize,
}

/// What a register of the rule holds.
#[derive(Clone, Debug)]
enum MatchedField {
    Port,
    Protocol,
    /// The first bytes of the destination address, after a mask if there is one.
    Destination {
        is_v4: bool,
        len: usize,
        mask: u128,
    },
}

impl MatchedField {
    /// Bytes of the field.
    const fn len(&self) -> usize {
        match self {
            Self::Port => 2,
            Self::Protocol => 1,
            Self::Destination { len, .. } => *len,
        }
    }
}

/// The packets that have met every condition of a rule so far.
struct Matching {
    ports: Vec<MatchedSpan>,
    registers: BTreeMap<u32, MatchedField>,
}

impl<F: FnMut(&ChainName, &str) -> Option<Vec<SetElement>>> Search<'_, F> {
    fn follow(&mut self, chain: &ChainName, ports: &[MatchedSpan], depth: usize) {
        let Some(rules) = self.rules.rules.get(chain) else { return };
        for rule in rules {
            self.steps += 1;
            // Ports that are found already need no other rule.
            let left = intersection(ports, &complement(&self.found, ALL_PORTS.1));
            if left.is_empty() {
                return;
            }
            if self.steps > MAX_STEPS || depth > MAX_DEPTH {
                return self.add(left);
            }
            self.follow_rule(chain, rule, Matching { ports: left, registers: BTreeMap::new() }, depth);
        }
    }

    fn follow_rule(&mut self, chain: &ChainName, rule: &[u8], mut matching: Matching, depth: usize) {
        for (_, expression) in attributes(rule) {
            let name = find(expression, EXPRESSION_NAME).map(text).unwrap_or_default();
            let data = find(expression, EXPRESSION_DATA).unwrap_or_default();
            match name.as_str() {
                "payload" => matching.load(payload(data, chain.0), data),
                "meta" => matching.load(meta(data), data),
                "bitwise" => matching.mask(data),
                "cmp" | "range" => {
                    if let Some((register, allowed)) = comparison(&name, data, &matching) {
                        matching.narrow(register, &allowed, self.own);
                    }
                }
                "lookup" => self.look_up(chain, data, &mut matching, depth),
                "match" => matching.narrow_by_iptables(data),
                "immediate" => {
                    if let Some(register) = number(data, IMMEDIATE_REGISTER) {
                        matching.registers.remove(&canonical(register));
                    }
                    let to = find(data, IMMEDIATE_DATA).and_then(target_of);
                    if let Some(to) = to {
                        self.follow(&(chain.0, chain.1.clone(), to), &matching.ports.clone(), depth + 1);
                    }
                }
                name if translates(name, data) => return self.add(matching.ports),
                "counter" | "limit" | "log" | "last" | "quota" | "connlimit" => {}
                // It may have written any register.
                _ => matching.registers.clear(),
            }
            if matching.ports.is_empty() {
                return;
            }
        }
    }

    /// Follows a lookup in a set, in a map of addresses, or in a map of verdicts.
    fn look_up(&mut self, chain: &ChainName, data: &[u8], matching: &mut Matching, depth: usize) {
        const SET: u16 = 1;
        const SOURCE: u16 = 2;
        const DESTINATION: u16 = 3;
        const FLAGS: u16 = 5;
        const INVERTED: u32 = 1;
        let set = find(data, SET).map(text).unwrap_or_default();
        let destination = number(data, DESTINATION);
        let is_verdict = destination == Some(VERDICT_REGISTER);
        let register = number(data, SOURCE).map(canonical);
        let field = register.and_then(|register| matching.registers.get(&register)).cloned();
        let Some(elements) = (self.elements)(chain, &set) else {
            // A set that cannot be read may have any chain and any port.
            if is_verdict {
                self.add(std::mem::take(&mut matching.ports));
            }
            return;
        };
        let entries = entries(&elements, field.as_ref().map(MatchedField::len));
        if is_verdict {
            for (span, to) in entries {
                let Some(to) = to else { continue };
                let mut here =
                    Matching { ports: matching.ports.clone(), registers: matching.registers.clone() };
                if let (Some(register), Some(span)) = (register, span) {
                    here.narrow(register, &[span], self.own);
                }
                self.follow(&(chain.0, chain.1.clone(), to), &here.ports, depth + 1);
            }
            return;
        }
        let spans: Option<Vec<MatchedSpan>> = entries.into_iter().map(|(span, _)| span).collect();
        if let (Some(register), Some(field), Some(spans)) = (register, field, spans) {
            let is_inverted = number(data, FLAGS).is_some_and(|flags| flags & INVERTED != 0);
            let spans = merged(spans);
            let allowed = if is_inverted { complement(&spans, largest(field.len())) } else { spans };
            matching.narrow(register, &allowed, self.own);
        }
        if let Some(destination) = destination {
            matching.registers.remove(&canonical(destination));
        }
    }

    fn add(&mut self, ports: Vec<MatchedSpan>) {
        let known = std::mem::take(&mut self.found);
        self.found = merged([known, ports].concat());
    }
}

impl Matching {
    /// Notes what a register holds from now on. The registers that the value covers hold nothing else.
    fn load(&mut self, field: Option<MatchedField>, data: &[u8]) {
        const DESTINATION: u16 = 1;
        const LEN: u16 = 4;
        let Some(register) = number(data, DESTINATION).map(canonical) else { return };
        let words =
            field.as_ref().map(MatchedField::len).or(number(data, LEN).map(|len| len as usize)).unwrap_or(16);
        let covered = register..register + words.div_ceil(4) as u32;
        self.registers.retain(|register, _| !covered.contains(register));
        if let Some(field) = field {
            self.registers.insert(register, field);
        }
    }

    /// Follows a mask over an address.
    fn mask(&mut self, data: &[u8]) {
        const SOURCE: u16 = 1;
        const DESTINATION: u16 = 2;
        const MASK: u16 = 4;
        const XOR: u16 = 5;
        let field =
            number(data, SOURCE).and_then(|register| self.registers.get(&canonical(register)).cloned());
        let mask = find(data, MASK).and_then(|mask| find(mask, VALUE)).map(value);
        let flips = find(data, XOR).and_then(|xor| find(xor, VALUE)).is_none_or(|xor| value(xor) != 0);
        let Some(destination) = number(data, DESTINATION).map(canonical) else { return };
        self.registers.remove(&destination);
        if let (Some(MatchedField::Destination { is_v4, len, mask: before }), Some(mask), false) =
            (field, mask, flips)
        {
            self.registers.insert(destination, MatchedField::Destination { is_v4, len, mask: before & mask });
        }
    }

    /// Leaves the packets of which a register holds one of these values.
    fn narrow(&mut self, register: u32, allowed: &[MatchedSpan], own: &[IpAddr]) {
        let holds = |value: u128| allowed.iter().any(|(first, last)| (*first..=*last).contains(&value));
        let is_possible = match self.registers.get(&register) {
            None => return,
            Some(MatchedField::Port) => {
                self.ports = intersection(&self.ports, allowed);
                return;
            }
            Some(MatchedField::Protocol) => holds(TCP),
            Some(MatchedField::Destination { is_v4, len, mask }) => own.iter().any(|address| match address {
                IpAddr::V4(address) if *is_v4 => holds(value(&address.octets()[..*len]) & mask),
                IpAddr::V6(address) if !*is_v4 => holds(value(&address.octets()[..*len]) & mask),
                _ => false,
            }),
        };
        if !is_possible {
            self.ports.clear();
        }
    }

    /// Follows a condition of iptables that has no form of its own in nftables.
    fn narrow_by_iptables(&mut self, data: &[u8]) {
        const NAME: u16 = 1;
        const INFO: u16 = 3;
        /// The condition on the destination port is inverted (`struct xt_tcp`).
        const NOT_TO_PORT: u8 = 2;
        let info = find(data, INFO).unwrap_or_default();
        // Numbers are in the order of this machine.
        let port =
            |at: usize| info.get(at..at + 2).map(|two| u128::from(u16::from_ne_bytes([two[0], two[1]])));
        let span = |first, last| port(first).zip(port(last));
        let (spans, is_inverted) = match find(data, NAME).map(text).unwrap_or_default().as_str() {
            "tcp" => {
                let Some(span) = span(4, 6) else { return };
                (vec![span], info.get(11).is_some_and(|flags| flags & NOT_TO_PORT != 0))
            }
            "udp" => (Vec::new(), false),
            "multiport" => {
                // `struct xt_multiport_v1`: kind, count, 15 ports, 15 marks of ports that begin an interval, inversion.
                let (Some([kind, count]), Some(begins)) = (info.first_chunk::<2>(), info.get(32..47)) else {
                    return;
                };
                // Source ports, or either.
                if *kind != 1 {
                    return;
                }
                let mut spans = Vec::new();
                let mut at = 0;
                while at < usize::from(*count).min(15) {
                    let last = at + usize::from(begins[at] != 0);
                    spans.extend(span(2 + 2 * at, 2 + 2 * last.min(14)));
                    at = last + 1;
                }
                (merged(spans), info.get(47).is_some_and(|inverted| *inverted != 0))
            }
            _ => return,
        };
        let allowed = if is_inverted { complement(&spans, ALL_PORTS.1) } else { spans };
        self.ports = intersection(&self.ports, &allowed);
    }
}

const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const IMMEDIATE_REGISTER: u16 = 1;
const IMMEDIATE_DATA: u16 = 2;
/// The value in nested data.
const VALUE: u16 = 1;
/// The register of verdicts.
const VERDICT_REGISTER: u32 = 0;

/// Whether an expression sends packets elsewhere.
fn translates(name: &str, data: &[u8]) -> bool {
    const FIRST: u16 = 1;
    const TO_DESTINATION: u32 = 1;
    match name {
        "nat" => number(data, FIRST) == Some(TO_DESTINATION),
        "redir" | "tproxy" => true,
        "target" => {
            let target = find(data, FIRST).map(text).unwrap_or_default();
            ["DNAT", "REDIRECT", "TPROXY", "NETMAP"].contains(&target.as_str())
        }
        _ => false,
    }
}

/// The chain that verdict data jump or go to.
fn target_of(data: &[u8]) -> Option<String> {
    const VERDICT: u16 = 2;
    const CHAIN: u16 = 2;
    Some(text(find(find(data, VERDICT)?, CHAIN)?))
}

/// The field that a load of packet bytes reads.
fn payload(data: &[u8], family: u8) -> Option<MatchedField> {
    const BASE: u16 = 2;
    const OFFSET: u16 = 3;
    const LEN: u16 = 4;
    const NETWORK: u32 = 1;
    const TRANSPORT: u32 = 2;
    let (base, offset, len) = (number(data, BASE)?, number(data, OFFSET)?, number(data, LEN)? as usize);
    let destination = |is_v4| MatchedField::Destination { is_v4, len, mask: u128::MAX };
    match (base, offset, len) {
        (TRANSPORT, 2, 2) => Some(MatchedField::Port),
        (NETWORK, 9, 1) if family != IPV6 => Some(MatchedField::Protocol),
        (NETWORK, 16, 1..=4) if family != IPV6 => Some(destination(true)),
        (NETWORK, 24, 1..=16) if family != IPV4 => Some(destination(false)),
        _ => None,
    }
}

/// The field that a load of metadata reads.
fn meta(data: &[u8]) -> Option<MatchedField> {
    const KEY: u16 = 2;
    const L4PROTO: u32 = 16;
    (number(data, KEY)? == L4PROTO).then_some(MatchedField::Protocol)
}

/// The register of a comparison, and the values that pass it.
fn comparison(name: &str, data: &[u8], matching: &Matching) -> Option<(u32, Vec<MatchedSpan>)> {
    const SOURCE: u16 = 1;
    const OPERATOR: u16 = 2;
    const FROM: u16 = 3;
    const TO: u16 = 4;
    let register = canonical(number(data, SOURCE)?);
    let field = matching.registers.get(&register)?;
    let bytes =
        |kind| find(data, kind).and_then(|data| find(data, VALUE)).filter(|key| key.len() == field.len());
    let (from, max) = (value(bytes(FROM)?), largest(field.len()));
    let operator = number(data, OPERATOR)?;
    if name == "range" {
        let span = [(from, value(bytes(TO)?))];
        return Some((register, if operator == 0 { span.to_vec() } else { complement(&span, max) }));
    }
    let allowed = match operator {
        0 => vec![(from, from)],
        1 => complement(&[(from, from)], max),
        2 => from.checked_sub(1).map(|last| (0, last)).into_iter().collect(),
        3 => vec![(0, from)],
        4 => {
            from.checked_add(1).filter(|first| *first <= max).map(|first| (first, max)).into_iter().collect()
        }
        5 => vec![(from, max)],
        _ => return None,
    };
    Some((register, allowed))
}

/// The keys of a set with the chains behind them; `None` for keys that are not of this length, or stand for all others.
fn entries(elements: &[SetElement], len: Option<usize>) -> Vec<(Option<MatchedSpan>, Option<String>)> {
    let has_intervals = elements.iter().any(|element| element.is_end);
    let is_field = |element: &&SetElement| Some(element.key.len()) == len;
    let (mut fields, others): (Vec<&SetElement>, Vec<&SetElement>) = elements.iter().partition(is_field);
    let mut entries: Vec<_> =
        others.iter().filter(|other| !other.is_end).map(|other| (None, other.chain.clone())).collect();
    fields.sort_by_key(|element| (value(&element.key), !element.is_end));
    let mut begun: Option<&SetElement> = None;
    for element in fields {
        let key = value(&element.key);
        if !has_intervals {
            entries.push((Some((key, key)), element.chain.clone()));
        } else if element.is_end {
            if let Some(first) = begun.take() {
                entries.push((Some((value(&first.key), key.saturating_sub(1))), first.chain.clone()));
            }
        } else {
            begun = Some(element);
        }
    }
    if let Some(first) = begun {
        entries.push((Some((value(&first.key), largest(first.key.len()))), first.chain.clone()));
    }
    entries
}

/// Registers of 16 bytes by the number of their first four bytes.
const fn canonical(register: u32) -> u32 {
    match register {
        1..=4 => 4 + 4 * register,
        other => other,
    }
}

/// The largest number of so many bytes.
const fn largest(len: usize) -> u128 {
    if len >= 16 { u128::MAX } else { (1 << (8 * len)) - 1 }
}

/// The number in network order.
fn value(bytes: &[u8]) -> u128 {
    bytes.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// The number of an attribute, which nftables has in network order.
pub(super) fn number(bytes: &[u8], wanted: u16) -> Option<u32> {
    find(bytes, wanted)?.try_into().ok().map(u32::from_be_bytes)
}

/// The text of an attribute, which ends with a zero.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.strip_suffix(b"\0").unwrap_or(bytes)).into_owned()
}

fn intersection(some: &[MatchedSpan], others: &[MatchedSpan]) -> Vec<MatchedSpan> {
    let both =
        some.iter().flat_map(|one| others.iter().map(|other| (one.0.max(other.0), one.1.min(other.1))));
    both.filter(|(first, last)| first <= last).collect()
}

/// The numbers up to `max` that are not in spans, which are in order.
fn complement(spans: &[MatchedSpan], max: u128) -> Vec<MatchedSpan> {
    let mut gaps = Vec::new();
    let mut next = Some(0);
    for (first, last) in spans {
        if let Some(next) = next.filter(|next| next < first) {
            gaps.push((next, first - 1));
        }
        next = last.checked_add(1);
    }
    gaps.extend(next.filter(|next| *next <= max).map(|next| (next, max)));
    gaps
}

/// Spans in order, none of which touch.
fn merged(mut spans: Vec<MatchedSpan>) -> Vec<MatchedSpan> {
    spans.sort_unstable();
    let mut merged: Vec<MatchedSpan> = Vec::new();
    for (first, last) in spans {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataplane::generic_netlink::attribute;

    /// A rule of two expressions: a condition of iptables, and a target of iptables.
    fn rule(condition: &str, info: &[u8], target: &str) -> Vec<u8> {
        let named = |kind, name: &str| attribute(kind, &[name.as_bytes(), b"\0"].concat());
        let expression = |name, data: Vec<u8>| {
            attribute(1, &[named(EXPRESSION_NAME, name), attribute(EXPRESSION_DATA, &data)].concat())
        };
        let condition = expression("match", [named(1, condition), attribute(3, info)].concat());
        [condition, expression("target", named(1, target))].concat()
    }

    fn found(rule: Vec<u8>) -> Vec<RangeInclusive<u16>> {
        let entrance = (IPV4, "nat".to_owned(), "PREROUTING".to_owned());
        let rules = HashMap::from([(entrance.clone(), vec![rule])]);
        ports(&Ruleset { entrances: vec![entrance], rules }, &[], |_, _| None)
    }

    /// `struct xt_tcp`: source ports, destination ports, two masks of flags, an option, inversions.
    fn tcp(first: u16, last: u16, inversions: u8) -> Vec<u8> {
        let ports = [0, u16::MAX, first, last].map(u16::to_ne_bytes).concat();
        [ports, vec![0, 0, 0, inversions]].concat()
    }

    /// `struct xt_multiport_v1` with these ports, each with whether it begins an interval.
    fn multiport(kind: u8, ports: &[(u16, bool)], is_inverted: bool) -> Vec<u8> {
        let mut info = vec![0; 48];
        (info[0], info[1], info[47]) = (kind, ports.len() as u8, u8::from(is_inverted));
        for (at, (port, begins)) in ports.iter().enumerate() {
            info[2 + 2 * at..][..2].copy_from_slice(&port.to_ne_bytes());
            info[32 + at] = u8::from(*begins);
        }
        info
    }

    #[test]
    fn conditions_of_iptables_narrow_the_ports() {
        assert_eq!(found(rule("tcp", &tcp(80, 80, 0), "DNAT")), [80..=80]);
        assert_eq!(found(rule("tcp", &tcp(8000, 8100, 0), "REDIRECT")), [8000..=8100]);
        assert_eq!(found(rule("tcp", &tcp(80, 80, 2), "NETMAP")), [0..=79, 81..=65535]);
        assert_eq!(found(rule("tcp", &tcp(80, 80, 0), "LOG")), []);
        assert_eq!(found(rule("udp", &tcp(80, 80, 0), "DNAT")), []);
        let ports = [(80, false), (8000, true), (8100, false), (443, false)];
        let expected = [80..=80, 443..=443, 8000..=8100];
        assert_eq!(found(rule("multiport", &multiport(1, &ports, false), "TPROXY")), expected);
        assert_eq!(found(rule("multiport", &multiport(1, &ports[..1], true), "DNAT")), [0..=79, 81..=65535]);
    }

    #[test]
    fn a_condition_that_is_not_understood_counts_as_met() {
        assert_eq!(found(rule("addrtype", &[1, 2, 3], "DNAT")), [0..=65535]);
        assert_eq!(found(rule("multiport", &multiport(0, &[(80, false)], false), "DNAT")), [0..=65535]);
        for info in [tcp(80, 80, 0), multiport(1, &[(80, true); 15], false)] {
            for len in 0..info.len() {
                found(rule("tcp", &info[..len], "DNAT"));
                found(rule("multiport", &info[..len], "DNAT"));
            }
        }
    }

    #[test]
    fn chains_that_lead_to_themselves_end() {
        let chain = |name: &str| (INET, "nat".to_owned(), name.to_owned());
        let verdict = attribute(2, &attribute(2, b"around\0"));
        let jump =
            [attribute(1, b"immediate\0"), attribute(2, &attribute(IMMEDIATE_DATA, &verdict))].concat();
        let rules = HashMap::from([(chain("around"), vec![attribute(1, &jump)])]);
        let found = ports(&Ruleset { entrances: vec![chain("around")], rules }, &[], |_, _| None);
        assert_eq!(found, [0..=65535], "as if every port were translated");
    }

    #[test]
    fn spans_are_merged_intersected_and_turned_around() {
        assert_eq!(merged(vec![(7, 9), (1, 2), (3, 3), (8, 12)]), [(1, 3), (7, 12)]);
        assert_eq!(intersection(&[(1, 5), (8, 9)], &[(4, 8)]), [(4, 5), (8, 8)]);
        assert_eq!(complement(&[(0, 3), (7, 9)], 9), [(4, 6)]);
        assert_eq!(complement(&[], u128::MAX), [(0, u128::MAX)]);
        assert_eq!(complement(&[(0, u128::MAX)], u128::MAX), []);
    }
}
