//! nftables at its earliest hook: ingress of the device, before the IP stack.

use std::{io::Write as _, process::Stdio};

use anyhow::{Context, Result, bail};

use super::Peer;
use crate::{
    case::{self, Case, SourceLimit},
    lane::Lane,
    traffic::{self, Family},
};

pub(super) fn set_up(lane: &Lane, case: &Case, peer: Peer) -> Result<()> {
    lane.turn_gro_on()?;
    let mut nft = lane.command("nft");
    let mut child = nft
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start nft, of nftables")?;
    let rules = rules(&lane.inlet, case, peer);
    child.stdin.take().context("nft has no standard input")?.write_all(rules.as_bytes())?;
    let done = child.wait_with_output().context("cannot wait for nft")?;
    if !done.status.success() {
        bail!("nft refuses the rules: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
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
        Peer::Limits => meter + &total.unwrap_or_default(),
    };
    format!(
        "table netdev bench {{\n  \
           set sources {{ type {kind}; size {size}; flags dynamic,timeout; timeout 1m; }}\n  \
           chain attacked {{\n    type filter hook ingress device {device} priority 0; policy accept;\n{body}  }}\n}}\n",
        size = case::TABLE_ENTRIES,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_comes_before_the_total_and_has_room_for_as_many_sources_as_ours() {
        let rules = rules("rlb0", &case::all(64)[0], Peer::Limits);
        let meter = rules.find("ip saddr limit rate over 1000/second burst 1000 packets").unwrap();
        let total = rules.find("limit rate over 100000/second").unwrap();
        assert!(meter < total && rules.contains("size 262144"), "{rules}");
    }

    #[test]
    fn ipv6_is_limited_by_network() {
        let cases = case::all(64);
        let case = cases.iter().find(|case| case.traffic.family == Family::V6).unwrap();
        assert!(rules("rlb0", case, Peer::Limits).contains("ip6 saddr & ffff:ffff:ffff:ffff::"));
    }
}
