//! Asks netfilter what it sends elsewhere: the rules of nftables, and connections that are tracked.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::{ControlFlow, RangeInclusive},
};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use super::{
    generic_netlink::{attribute, attributes, find},
    translation::{self, ChainName, INET, IPV4, IPV6, Ruleset, SetElement, number, text},
};
use crate::policy::Service;

/// Questions: the subsystem in the upper byte, and the kind of question in the lower (linux/netfilter/nf_tables.h, nfnetlink_conntrack.h).
const GET_CHAINS: u16 = 0x0a_04;
const GET_RULES: u16 = 0x0a_07;
const GET_ELEMENTS: u16 = 0x0a_0d;
const GET_GENERATION: u16 = 0x0a_10;
const GET_CONNECTIONS: u16 = 0x01_01;

/// Kinds of messages in answers.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Bytes of a netlink header, and of the header of netfilter behind it.
const HEADER: usize = 16;
const HEADERS: usize = HEADER + 4;

/// Bytes of an answer about connections that are read at most. Entries lie in the order of their hash, so busy ports are among the first.
const MOST_READ: usize = 4 << 20;

/// Returns the number of the rules of nftables, which changes with every change of them; `None` if the kernel has no nftables.
pub fn generation() -> io::Result<Option<u32>> {
    const ID: u16 = 1;
    let mut generation = None;
    let asked = ask(GET_GENERATION, 0, NLM_F_REQUEST, &[], |_, attributes| {
        generation = number(attributes, ID);
        ControlFlow::Break(())
    });
    match asked {
        Ok(()) => Ok(generation),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the TCP ports whose packets to one of these addresses rules of nftables may send elsewhere.
pub fn ports_of_rules(own: &[IpAddr]) -> io::Result<Vec<RangeInclusive<u16>>> {
    let rules = match ruleset() {
        Ok(rules) => rules,
        Err(error) if is_missing(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut sets: HashMap<(ChainName, String), Option<Vec<SetElement>>> = HashMap::new();
    let elements = |chain: &ChainName, set: &str| {
        let table = (chain.0, chain.1.clone(), String::new());
        sets.entry((table, set.to_owned())).or_insert_with(|| elements(chain, set).ok()).clone()
    };
    Ok(translation::ports(&rules, own, elements))
}

/// Returns the TCP ports at these addresses of which tracked connections were sent elsewhere.
pub fn ports_of_connections(own: &[IpAddr]) -> io::Result<BTreeSet<u16>> {
    const STATUS: u16 = 3;
    const STATUS_MASK: u16 = 26;
    /// The destination of the connection was translated.
    const DESTINATION_TRANSLATED: u32 = 1 << 5;
    let wanted = DESTINATION_TRANSLATED.to_be_bytes();
    let filter = [attribute(STATUS, &wanted), attribute(STATUS_MASK, &wanted)].concat();
    let (mut ports, mut read) = (BTreeSet::new(), 0);
    let asked = ask(GET_CONNECTIONS, 0, NLM_F_DUMP | NLM_F_REQUEST, &filter, |_, attributes| {
        read += attributes.len();
        // Kernels that do not filter send all connections.
        let is_wanted = number(attributes, STATUS).is_some_and(|status| status & DESTINATION_TRANSLATED != 0);
        ports.extend(
            destination(attributes)
                .filter(|(address, _)| is_wanted && own.contains(address))
                .map(|(_, port)| port),
        );
        if read > MOST_READ { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match asked {
        Err(error) if !is_missing(&error) => Err(error),
        _ => Ok(ports),
    }
}

/// Returns why packets for a TCP service are sent elsewhere; `None` if they are not. Takes the ports that rules send elsewhere, and those of connections that were.
pub fn cause(
    service: &Service,
    by_rules: &[RangeInclusive<u16>],
    by_connections: impl IntoIterator<Item = u16>,
) -> Option<String> {
    let met = |ports: &RangeInclusive<u16>| {
        service.ports().iter().find_map(|own| {
            let first = *own.start().max(ports.start());
            (first <= *own.end().min(ports.end())).then_some(first)
        })
    };
    if let Some(port) = by_rules.iter().find_map(met) {
        return Some(format!(
            "rules of nftables send packets to port {port} elsewhere (dnat, redirect or tproxy)"
        ));
    }
    let port = by_connections.into_iter().find_map(|port| met(&(port..=port)))?;
    Some(format!("tracked connections to port {port} were sent elsewhere (DNAT)"))
}

/// The address and port that a TCP connection was made to, before translation.
fn destination(connection: &[u8]) -> Option<(IpAddr, u16)> {
    const ORIGINAL: u16 = 1;
    const ADDRESSES: u16 = 1;
    const TO_V4: u16 = 2;
    const TO_V6: u16 = 4;
    const TRANSPORT: u16 = 2;
    const PROTOCOL: u16 = 1;
    const TO_PORT: u16 = 3;
    let original = find(connection, ORIGINAL)?;
    let (addresses, transport) = (find(original, ADDRESSES)?, find(original, TRANSPORT)?);
    if find(transport, PROTOCOL)? != [libc::IPPROTO_TCP as u8] {
        return None;
    }
    let port = u16::from_be_bytes(find(transport, TO_PORT)?.try_into().ok()?);
    let v4 = find(addresses, TO_V4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    let v6 = find(addresses, TO_V6).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let address =
        v4.map(|bytes| Ipv4Addr::from(bytes).into()).or(v6.map(|bytes| Ipv6Addr::from(bytes).into()))?;
    Some((address, port))
}

/// Reads the chains that packets meet before they are routed, and all rules.
fn ruleset() -> io::Result<Ruleset> {
    const TABLE: u16 = 1;
    const CHAIN_NAME: u16 = 3;
    const HOOK: u16 = 4;
    const HOOK_NUMBER: u16 = 1;
    const BEFORE_ROUTING: u32 = 0;
    const RULE_CHAIN: u16 = 2;
    const EXPRESSIONS: u16 = 4;
    let mut rules = Ruleset::default();
    let is_ip = |family: u8| [INET, IPV4, IPV6].contains(&family);
    ask(GET_CHAINS, 0, NLM_F_DUMP | NLM_F_REQUEST, &[], |family, chain| {
        let hook = find(chain, HOOK).and_then(|hook| number(hook, HOOK_NUMBER));
        if let (true, Some(BEFORE_ROUTING), Some(table), Some(name)) =
            (is_ip(family), hook, find(chain, TABLE), find(chain, CHAIN_NAME))
        {
            rules.entrances.push((family, text(table), text(name)));
        }
        ControlFlow::Continue(())
    })?;
    if rules.entrances.is_empty() {
        return Ok(rules);
    }
    ask(GET_RULES, 0, NLM_F_DUMP | NLM_F_REQUEST, &[], |family, rule| {
        if let (true, Some(table), Some(chain), Some(expressions)) =
            (is_ip(family), find(rule, TABLE), find(rule, RULE_CHAIN), find(rule, EXPRESSIONS))
        {
            rules.rules.entry((family, text(table), text(chain))).or_default().push(expressions.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    Ok(rules)
}

/// Reads the elements of a set in the table of a chain.
fn elements(chain: &ChainName, set: &str) -> io::Result<Vec<SetElement>> {
    const TABLE: u16 = 1;
    const SET: u16 = 2;
    const ELEMENTS: u16 = 3;
    let named = |kind, name: &str| attribute(kind, &[name.as_bytes(), b"\0"].concat());
    let question = [named(TABLE, &chain.1), named(SET, set)].concat();
    let mut elements = Vec::new();
    ask(GET_ELEMENTS, chain.0, NLM_F_DUMP | NLM_F_REQUEST, &question, |_, part| {
        let list = find(part, ELEMENTS).unwrap_or_default();
        elements.extend(attributes(list).map(|(_, element)| translation::element(element)));
        ControlFlow::Continue(())
    })?;
    Ok(elements)
}

/// Whether the kernel lacks what was asked.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOENT))
}

/// Asks a question, and calls `each` with the family and the attributes of every message of the answer, until it has enough.
fn ask(
    question: u16,
    family: u8,
    flags: u16,
    attributes: &[u8],
    mut each: impl FnMut(u8, &[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut message = ((HEADERS + attributes.len()) as u32).to_ne_bytes().to_vec();
    message.extend(question.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // The sequence number and the sender are not read.
    message.extend([0; 8]);
    message.extend([family, 0, 0, 0]);
    message.extend(attributes);
    socket.send(&message, 0)?;
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while let Some((kind, body)) = next(&mut rest) {
            match kind {
                DONE => return Ok(()),
                ERROR => return Err(refused(body)),
                _ => {
                    let (head, attributes) = body.split_at_checked(4).unwrap_or_default();
                    if each(head.first().copied().unwrap_or_default(), attributes).is_break() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Takes the next message from a datagram: its kind, and what is behind its header.
fn next<'d>(datagram: &mut &'d [u8]) -> Option<(u16, &'d [u8])> {
    let len = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
    let message = datagram.get(..len).filter(|message| message.len() >= HEADER)?;
    *datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((u16::from_ne_bytes([message[4], message[5]]), &message[HEADER..]))
}

/// The error of an error message: a negative error number.
fn refused(body: &[u8]) -> io::Error {
    let number = body.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    if number < 0 {
        io::Error::from_raw_os_error(-number)
    } else {
        io::Error::other("the kernel did not say")
    }
}
