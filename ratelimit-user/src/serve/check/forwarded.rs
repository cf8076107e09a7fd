//! Where a request comes from, as far as it can be believed.
//!
//! Only trusted peers may name the address of a caller: proxies that the policy names, programs on this host, and callers that may open the socket's file.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{HeaderMap, HeaderName};

use crate::serve::{door::Door, listener::Peer};

/// The field to which proxies append the address of their peer.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallerOrigin {
    /// The address; none for programs on this host that name none.
    pub ip: Option<IpAddr>,
    /// Whether the address may be blocked for its requests.
    pub vouched: bool,
}

/// Returns the address of a request: the address that the peer names if the peer is trusted, else the peer's own.
pub(super) fn origin(door: &Door, claimed: Option<IpAddr>, headers: &HeaderMap) -> CallerOrigin {
    match door.peer {
        // The peer has answered from this address, so it is the peer's own.
        Peer::Host(ip) if !speaks(door, ip) => CallerOrigin { ip: Some(ip), vouched: true },
        _ => CallerOrigin { ip: told(door, claimed, headers), vouched: door.vouches() },
    }
}

/// Whether the peer at this address may name the addresses of callers.
fn speaks(door: &Door, ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback() || door.decisions.trusts(ip)
}

/// Returns the address that a trusted peer names.
fn told(door: &Door, claimed: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
    if claimed.is_some() {
        return claimed;
    }
    let own = match door.peer {
        Peer::Host(ip) => Some(ip),
        Peer::Local => None,
    };
    // There is almost always one line or none. Of several lines, the last was written last.
    let mut lines = headers.get_all(FORWARDED_FOR).iter();
    let forwarded = std::iter::from_fn(|| lines.next_back())
        .flat_map(|line| line.to_str().unwrap_or(UNREADABLE).rsplit(','))
        .map(str::trim);
    client(forwarded, |ip| speaks(door, ip)).or(own)
}

/// Stands for a line that is not text.
const UNREADABLE: &str = "?";

/// Returns the first address, from the nearest on, that is no trusted proxy; the furthest one if all are trusted. What an untrusted one wrote is not read.
fn client<'f>(
    nearest_first: impl Iterator<Item = &'f str>,
    trusts: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let mut furthest = None;
    for word in nearest_first {
        // "unknown", or another word that a proxy hides its peer behind: the proxy that wrote it is as far as we can see.
        let Some(ip) = parse(word) else { break };
        furthest = Some(ip);
        if !trusts(ip) {
            break;
        }
    }
    furthest
}

/// Reads an address, with or without a port.
fn parse(word: &str) -> Option<IpAddr> {
    let bracketed = || word.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || word.parse::<SocketAddr>().ok().map(|address| address.ip());
    word.parse().ok().or_else(with_port).or_else(bracketed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{config, places::Guest, requests::decision_service::DecisionService, serve::drain::Drain};

    #[test]
    fn an_address_can_be_blocked_only_if_somebody_answers_for_it() {
        let text =
            "[source]\nlimits = [\"1/s\"]\n[listen]\ntrusted_proxies = [\"10.0.0.0/8\", \"127.0.0.2\"]\n";
        let decisions = Arc::new(DecisionService::new(&config::parse(text, "test").unwrap().policy));
        let (named, host) = ("8.8.8.8".parse().unwrap(), |ip: &str| Peer::Host(ip.parse().unwrap()));
        for (peer, is_shown, ip, vouched) in [
            // Anybody on this host, without and with a token.
            (host("127.0.0.1"), false, "8.8.8.8", false),
            (host("::ffff:127.0.0.1"), false, "8.8.8.8", false),
            (host("::1"), false, "8.8.8.8", false),
            (host("127.0.0.1"), true, "8.8.8.8", true),
            // Proxies that the policy names, also on loopback.
            (host("127.0.0.2"), false, "8.8.8.8", true),
            (host("10.0.0.1"), true, "8.8.8.8", true),
            (Peer::Local, true, "8.8.8.8", true),
            // Every other peer speaks for itself.
            (host("192.0.2.1"), true, "192.0.2.1", true),
        ] {
            let (decisions, quotas) = (Arc::clone(&decisions), Arc::default());
            let door = Door {
                decisions,
                token: None,
                viewer_token: None,
                operator_token: None,
                gallery: None,
                quotas,
                streams: Arc::default(),
                peer,
                is_shown,
                guest: Guest::anybody(),
                draining: Drain::new(Vec::new()).subscribe(),
            };
            let expected = CallerOrigin { ip: Some(ip.parse().unwrap()), vouched };
            assert_eq!(origin(&door, Some(named), &HeaderMap::new()), expected, "{peer:?} {is_shown}");
        }
    }

    /// Returns the client of a chain as it is written, with 10.0.0.0/8 trusted.
    fn client_of(chain: &str) -> Option<String> {
        let trusts = |ip: IpAddr| matches!(ip, IpAddr::V4(ip) if ip.octets()[0] == 10);
        client(chain.rsplit(',').map(str::trim), trusts).map(|ip| ip.to_string())
    }

    #[test]
    fn the_client_is_the_nearest_address_that_is_no_trusted_proxy() {
        for (chain, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1, 10.0.0.1", Some("192.0.2.1")),
            // What a client itself writes in front is not believed.
            ("198.51.100.9, 192.0.2.1, 10.0.0.2, 10.0.0.1", Some("192.0.2.1")),
            ("10.0.0.3, 192.0.2.1", Some("192.0.2.1")),
            // All addresses are trusted: the furthest counts.
            ("10.0.0.2,10.0.0.1", Some("10.0.0.2")),
            // Some proxies write ports.
            ("192.0.2.1:4711, 10.0.0.1:80", Some("192.0.2.1")),
            ("[2001:db8::1]:4711", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("2001:db8::1", Some("2001:db8::1")),
            // A word that cannot be read ends the chain.
            ("192.0.2.1, unknown, 10.0.0.1", Some("10.0.0.1")),
            ("192.0.2.1, unknown", None),
            ("", None),
        ] {
            assert_eq!(client_of(chain).as_deref(), expected, "{chain:?}");
        }
    }
}
