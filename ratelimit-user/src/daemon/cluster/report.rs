//! Reports about the cluster for operators: its status, its hosts, and warnings.

use std::time::Instant;

use ratelimit_common::abi::ListEntry;

use super::Cluster;
use crate::{
    cluster::blocks::{BlockRecord as HeardBlock, HostBlock},
    compile::lists::{Lists, Prefix},
    control::protocol::{Block, ClusterStatus, Reply},
    daemon::state::entries::is_of_cluster,
    log,
    policy::WithoutStore,
    store::{clock, exchange::Others},
};

/// How long a warning about a clock that was set stays.
const SAID_FOR_NS: u64 = 3_600 * 1_000_000_000;

impl Cluster {
    /// Returns the most that all hosts together can admit, as a multiple of a limit.
    fn bound(&self) -> u32 {
        match self.policy.without_store() {
            WithoutStore::LastRate if self.is_cut_off() => self.policy.hosts(),
            WithoutStore::Reserve | WithoutStore::LastRate => 1,
        }
    }

    pub(super) fn bound_in_words(&self) -> String {
        let kept = f64::from(self.policy.reserve().permille()) / 10.0;
        match (self.is_cut_off(), self.policy.without_store()) {
            (false, _) => "burst + rate x time on all hosts together".to_owned(),
            (true, WithoutStore::Reserve) => {
                format!(
                    "burst + rate x time on all hosts together; without the store each host has its part of the {kept} % that are kept back"
                )
            }
            (true, WithoutStore::LastRate) => {
                let hosts = self.policy.hosts();
                format!(
                    "burst + rate x time on each host by itself, {hosts} times the limit at most: without the store each goes on at the rate that it had"
                )
            }
        }
    }

    /// Returns the warnings about the cluster, as sentences.
    fn warnings(&self, now_ns: u64) -> Vec<String> {
        let mut warnings = self.warnings.clone();
        warnings.extend(self.gossip.unheard().map(|why| format!("{why}; limits hold all the same")));
        warnings.extend(self.dispute(now_ns));
        if let Some((step_ms, at_ns)) = self.clock_step
            && now_ns.saturating_sub(at_ns) < SAID_FOR_NS
        {
            let ago = now_ns.saturating_sub(at_ns) / 1_000_000_000;
            warnings.push(format!("{ago} s ago {}", clock::said(step_ms)));
        }
        warnings
    }

    /// Returns the sentence that hosts have different limits, if they have.
    fn dispute(&self, now_ns: u64) -> Option<String> {
        const NAMED: usize = 3;
        let disputed: Vec<(&str, Others)> = self.leases.disputed(now_ns).collect();
        let one = |(key, others): &(&str, Others)| {
            let whose =
                if *others == Others::SayLess { "another host's, which is less" } else { "this host's" };
            format!("{} ({whose}, is in force)", self.keys.limit_of(key))
        };
        let named: Vec<String> = disputed.iter().take(NAMED).map(one).collect();
        let more = if disputed.len() > NAMED { ", ..." } else { "" };
        (!disputed.is_empty()).then(|| {
            format!(
                "hosts have different limits in their policies, or keep back different parts of them, and the smallest is in force for all; {} of them: \
                 {}{more}; give all hosts the same",
                disputed.len(),
                named.join(", ")
            )
        })
    }

    /// Logs once that hosts have different limits, and once that they agree again.
    pub(super) fn speak_of_disputes(&mut self, now_ns: u64) {
        let dispute = self.dispute(now_ns);
        if dispute.is_some() != self.said_disputes {
            self.said_disputes = dispute.is_some();
            log::warning(dispute.unwrap_or_else(|| "hosts have the same limits again".to_owned()));
        }
    }

    /// Returns this host's part in the cluster, for `status`.
    pub(in crate::daemon) fn status(&self, now: Instant, now_ns: u64) -> ClusterStatus {
        let totals = self.leases.totals(now_ns);
        ClusterStatus {
            store: self.policy.redis().to_string(),
            store_up: self.problem.is_none(),
            problem: self.problem.clone(),
            failing_seconds: self.breaker.failing_for(now).map(|time| time.as_secs()),
            host: self.id.clone(),
            limits: totals.limits,
            leases: totals.held,
            lease_units: totals.units,
            exchanges: self.exchanges,
            lines: self.lines,
            failures: self.failures,
            given_up: self.breaker.opened(),
            round_trip_us: self.round_trip.last().as_micros() as u64,
            hosts_seen: self.gossip.members().len() as u64,
            changes_waiting: self.gossip.waiting() as u64,
            bound: self.bound_in_words(),
            bound_times_limit: self.bound(),
            limits_disputed: self.leases.disputed(now_ns).count() as u64,
            is_heard: self.gossip.unheard().is_none(),
            clock_steps: self.clock_steps,
            warnings: self.warnings(now_ns),
        }
    }

    /// Returns the reply to `cluster`: this host's part, and the hosts.
    pub(in crate::daemon) fn reply(&self, now_ns: u64) -> Reply {
        let status = Box::new(self.status(Instant::now(), now_ns));
        let mut hosts = self.gossip.members().to_vec();
        hosts.sort_by(|one, other| one.host.cmp(&other.host));
        Reply::Cluster { status, hosts }
    }

    /// Returns the blocks for all hosts that this host refuses.
    pub(in crate::daemon) fn refused(&self, now_ns: u64) -> Vec<Block> {
        let refused = |(prefix, block, why): (&Prefix, &_, Option<&str>)| {
            let block: &HeardBlock = block;
            let refused = Some(why?.to_owned());
            Some(Block { refused, ..described(prefix, &block.host_block, Some(&block.origin), now_ns) })
        };
        self.gossip.blocks(now_ns).filter_map(refused).collect()
    }

    /// Returns the second block of a prefix, which is not on the list: the one for all hosts if this host's own lasts longer, or else this host's own.
    pub(in crate::daemon) fn beside(&self, prefix: &Prefix, entry: &ListEntry, now_ns: u64) -> Option<Block> {
        if is_of_cluster(entry) {
            let own = self.gossip.block_behind(prefix, now_ns)?;
            return Some(described(prefix, own, None, now_ns));
        }
        let block = self.gossip.block_here_too(prefix, now_ns)?;
        Some(described(prefix, &block.host_block, Some(&block.origin), now_ns))
    }

    /// Returns how many prefixes have a second block that is not on the list.
    pub(in crate::daemon) fn beside_in_all(&self, lists: &Lists, now_ns: u64) -> usize {
        let is_beside = |prefix: &&Prefix| {
            let entry = lists.get(prefix).filter(|entry| entry.own_blocked_until_ns > now_ns);
            entry.is_some_and(|entry| self.beside(prefix, entry, now_ns).is_some())
        };
        let behind = self.gossip.blocks_behind(now_ns).map(|(prefix, _)| prefix);
        // A prefix counts once: those with a hidden block of this host are left out here.
        let for_all = self.gossip.blocks(now_ns).map(|(prefix, _, _)| prefix);
        let for_all = for_all.filter(|prefix| self.gossip.block_behind(prefix, now_ns).is_none());
        behind.chain(for_all).filter(is_beside).count()
    }

    /// Returns the host that made the block of a prefix for all hosts.
    pub(in crate::daemon) fn block_of<'c>(&'c self, prefix: &Prefix, now_ns: u64) -> Option<&'c str> {
        self.gossip.block(prefix, now_ns).map(|block| block.origin.as_str())
    }
}

/// Returns a block in the form of the control protocol.
fn described(prefix: &Prefix, block: &HostBlock, origin: Option<&str>, now_ns: u64) -> Block {
    Block {
        prefix: prefix.to_string(),
        seconds_left: block.until_ns.map(|until| until.saturating_sub(now_ns).div_ceil(1_000_000_000)),
        reason: Some(block.reason.clone()).filter(|reason| !reason.is_empty()),
        origin: origin.map(str::to_owned),
        refused: None,
    }
}
