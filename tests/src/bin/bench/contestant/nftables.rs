//! nftables at its earliest hook: ingress of the device, before the IP stack.

use anyhow::Result;

use super::Peer;
use crate::{
    case::{Case, SourceLimit},
    lane::Lane,
    shell,
    traffic::{self, Family},
};

pub(super) fn set_up(lane: &Lane, case: &Case, peer: Peer) -> Result<()> {
    lane.turn_gro_on()?;
    shell::fed(lane.command("nft").args(["-f", "-"]), &rules(&lane.inlet, case, peer))
}

/// The meter that nftables' own documentation recommends: a dynamic set, one limit for each element. Elements leave
/// a minute after their last packet, as ours leave when they are the oldest; a set without that is full for good.
fn rules(device: &str, case: &Case, peer: Peer) -> String {
    let port = traffic::PORT;
    let (kind, source) = match case.traffic.family {
        Family::V4 => ("ipv4_addr", "ip saddr"),
        Family::V6 => ("ipv6_addr", "ip6 saddr & ffff:ffff:ffff:ffff::"),
    };
    let SourceLimit { packets, per, burst } = case.limit;
    let meter = format!(
        "    udp dport {port} update @sources {{ {source} limit rate over {packets}/{} burst {burst} packets }} drop\n",
        per.word()
    );
    let total = case.total.map(|total| {
        format!("    udp dport {port} limit rate over {total}/second burst {total} packets drop\n")
    });
    let body = match peer {
        Peer::Drop => "    drop\n".to_owned(),
        Peer::Limits => {
            let blocked = if case.listed > 0 { "    ip saddr @blocked drop\n" } else { "" };
            format!("{blocked}{meter}{}", total.unwrap_or_default())
        }
    };
    let blocked: Vec<String> = case.blocked().map(|address| address.to_string()).collect();
    let list = match &blocked[..] {
        [] => String::new(),
        some => format!("  set blocked {{ type ipv4_addr; elements = {{ {} }}; }}\n", some.join(", ")),
    };
    format!(
        "table netdev bench {{\n{list}  \
           set sources {{ type {kind}; size {size}; flags dynamic,timeout; timeout 1m; }}\n  \
           chain attacked {{\n    type filter hook ingress device {device} priority 0; policy accept;\n{body}  }}\n}}\n",
        size = case.table_entries,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    #[test]
    fn a_meter_comes_before_the_total_and_has_room_for_as_many_sources_as_ours() {
        let rules = rules("rlb0", &case::all(64)[0], Peer::Limits);
        let meter = rules.find("ip saddr limit rate over 1000/second burst 1000 packets").unwrap();
        let total = rules.find("limit rate over 100000/second").unwrap();
        assert!(meter < total && rules.contains("size 262144"), "{rules}");
    }

    #[test]
    fn a_list_is_asked_before_the_meter() {
        let cases = case::all(64);
        let case = cases.iter().find(|case| case.listed > 0).unwrap();
        let rules = rules("rlb0", case, Peer::Limits);
        assert!(rules.contains("elements = { 10.0.0.0, 10.0.0.2, "));
        assert!(rules.find("@blocked drop").unwrap() < rules.find("update @sources").unwrap());
    }
}
