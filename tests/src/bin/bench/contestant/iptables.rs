//! iptables at its earliest table: raw PREROUTING, before connection tracking.

use anyhow::Result;

use super::Peer;
use crate::{
    case::{self, Case, SourceLimit},
    lane::Lane,
    shell,
    traffic::{self, Family},
};

pub(super) fn set_up(lane: &Lane, case: &Case, peer: Peer) -> Result<()> {
    lane.turn_gro_on()?;
    let program = match case.traffic.family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    };
    for rule in rules(case, peer) {
        let words = format!("-w -t raw -A PREROUTING {rule} -j DROP");
        shell::output(lane.command(program).args(words.split_whitespace()))?;
    }
    Ok(())
}

/// Every packet that matches one of these is dropped.
fn rules(case: &Case, peer: Peer) -> Vec<String> {
    if peer == Peer::Drop {
        return vec![String::new()];
    }
    let udp = format!("-p udp --dport {}", traffic::PORT);
    let SourceLimit { packets, per, burst } = case.limit;
    let mask = match case.traffic.family {
        Family::V4 => 32,
        Family::V6 => 64,
    };
    // As many chains as sources: more than hashlimit would choose, and the best for it.
    let room = case::TABLE_ENTRIES;
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
    std::iter::once(source).chain(total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_a_source_comes_before_the_total() {
        let rules = rules(&case::all(64)[0], Peer::Limits);
        assert!(
            rules[0].contains("--hashlimit-mode srcip") && rules[0].contains("--hashlimit-above 1000/second")
        );
        assert!(!rules[1].contains("srcip") && rules[1].contains("--hashlimit-above 100000/second"));
        assert_eq!(self::rules(&case::all(64)[0], Peer::Drop), [""]);
    }
}
