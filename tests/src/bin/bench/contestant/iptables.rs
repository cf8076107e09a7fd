//! iptables at its earliest table: raw PREROUTING, before connection tracking.

use anyhow::Result;

use super::Peer;
use crate::{
    case::{Case, SourceLimit},
    lane::Lane,
    shell,
    traffic::{self, Family},
};

/// The most that hashlimit takes, a second. A limit that no source is to reach is above it: some packets are then refused one rule earlier.
const FASTEST: u32 = 1_000_000;
/// The set of a case with a list.
const BLOCKED: &str = "blocked";

pub(super) fn set_up(lane: &Lane, case: &Case, peer: Peer) -> Result<()> {
    lane.turn_gro_on()?;
    let program = match case.traffic.family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    };
    if case.listed > 0 {
        shell::fed(lane.command("ipset").arg("restore"), &listed(case))?;
    }
    for rule in rules(case, peer) {
        let words = format!("-w -t raw -A PREROUTING {rule} -j DROP");
        shell::output(lane.command(program).args(words.split_whitespace()))?;
    }
    Ok(())
}

/// The set of blocked addresses, for ipset.
fn listed(case: &Case) -> String {
    let mut text = format!("create {BLOCKED} hash:ip maxelem {}\n", case.listed);
    case.blocked().for_each(|address| text += &format!("add {BLOCKED} {address}\n"));
    text
}

/// Every packet that matches one of these is dropped.
fn rules(case: &Case, peer: Peer) -> Vec<String> {
    if peer == Peer::Drop {
        return vec![String::new()];
    }
    let udp = format!("-p udp --dport {}", traffic::PORT);
    let SourceLimit { packets, per, burst } = case.limit;
    let packets = packets.min(FASTEST);
    let mask = match case.traffic.family {
        Family::V4 => 32,
        Family::V6 => 64,
    };
    // As many chains as sources: more than hashlimit would choose, and the best for it.
    let room = case.table_entries;
    let source = format!(
        "{udp} -m hashlimit --hashlimit-name source --hashlimit-mode srcip --hashlimit-srcmask {mask} \
         --hashlimit-above {packets}/{} --hashlimit-burst {burst} --hashlimit-htable-size {room} \
         --hashlimit-htable-max {room} --hashlimit-htable-expire 60000",
        per.word()
    );
    // No mode: one bucket for all. The limit match would be the usual choice, but ends at 10000 a second.
    let total = case.total.map(|total| {
        format!("{udp} -m hashlimit --hashlimit-name total --hashlimit-above {total}/second --hashlimit-burst {total}")
    });
    let blocked = (case.listed > 0).then(|| format!("-m set --match-set {BLOCKED} src"));
    blocked.into_iter().chain([source]).chain(total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    #[test]
    fn the_limit_of_a_source_comes_before_the_total() {
        let rules = rules(&case::all(64)[0], Peer::Limits);
        assert!(
            rules[0].contains("--hashlimit-mode srcip") && rules[0].contains("--hashlimit-above 1000/second")
        );
        assert!(!rules[1].contains("srcip") && rules[1].contains("--hashlimit-above 100000/second"));
        assert_eq!(self::rules(&case::all(64)[0], Peer::Drop), [""]);
    }

    #[test]
    fn a_list_is_a_set_that_is_asked_first() {
        let cases = case::all(64);
        let case = cases.iter().find(|case| case.listed > 0).unwrap();
        assert_eq!(rules(case, Peer::Limits)[0], "-m set --match-set blocked src");
        assert_eq!(listed(case).lines().nth(1), Some("add blocked 10.0.0.0"));
    }
}
