//! Carries the totals of services and of the host over a change of their limits: the tokens spent under the old limit, and those that CPUs hold unspent.

use std::collections::BTreeMap;

use aya::maps::PerCpuValues;
use ratelimit_common::{
    abi::{
        self, Share, Total, TotalState,
        service::{HOST_TOTAL, MAX_TOTALS, Party},
    },
    limit::gcra,
};

use super::KernelMaps;
use crate::{
    compile::{self, Desired},
    dataplane::{DataplaneError, probe},
};

impl KernelMaps {
    /// Takes away the tokens that CPUs hold of the totals of services, and their notes of refusals: both are in time words of the old
    /// limit. Under a faster limit the tokens would admit a flood, and the notes would refuse for too long.
    pub(super) fn empty_shares(&mut self, services: &[u32]) -> Result<(), DataplaneError> {
        let cpus = aya::util::nr_cpus()
            .map_err(|(path, source)| DataplaneError::Io { action: format!("read {path}"), source })?;
        for index in services {
            let empty = PerCpuValues::try_from(vec![Share::EMPTY; cpus])
                .map_err(DataplaneError::io("count the CPUs"))?;
            self.shares
                .set(*index, empty, 0)
                .map_err(DataplaneError::map("take back the shares of a total"))?;
        }
        Ok(())
    }

    /// Makes the bucket of every total empty, in maps that no program reads yet.
    pub fn spend_totals(&mut self, desired: &Desired, now_q8: u64) -> Result<(), DataplaneError> {
        let policy = &desired.policy;
        let services = (0..).zip(policy.services.iter().map(|service| &service.totals));
        for (index, totals) in services.chain([(HOST_TOTAL, &policy.host_totals)]) {
            let state = spent(totals, now_q8);
            if state.tat_q8.iter().any(|tat_q8| *tat_q8 != 0) {
                self.totals
                    .set(index, state, 0)
                    .map_err(DataplaneError::map("write the buckets of a total"))?;
            }
        }
        Ok(())
    }

    /// Returns the tokens, as time, that CPUs have taken of each limit of the totals and not spent.
    pub(super) fn held(&self, totals: &[u32]) -> Result<BTreeMap<u32, [u64; MAX_TOTALS]>, DataplaneError> {
        let read = |total| self.shares.get(total, 0).map_err(DataplaneError::map("read the shares of CPUs"));
        totals.iter().map(|total| Ok((*total, held(&read(total)?)))).collect()
    }

    /// Moves the buckets of totals ahead, so that the next policy does not give spent tokens again. Called right before
    /// that policy comes into force: from here on a bucket may be beyond its tolerance, which refuses everything. Tokens that CPUs take in the
    /// microseconds between reading a bucket and writing it are not counted.
    pub(super) fn carry_totals(
        &mut self,
        before: &abi::Policy,
        desired: &Desired,
        held_q8: &BTreeMap<u32, [u64; MAX_TOTALS]>,
    ) -> Result<(), DataplaneError> {
        let now_q8 = gcra::time_q8(probe::now_ns());
        self.change_totals(&desired.changed_totals, |index, state| {
            desired.carried_total(before, index, state, held_q8[&index], now_q8)
        })
    }

    /// Moves buckets of totals back that are further ahead than the policy in force allows: they were spent under a slower limit of the policy before, or moved for a policy
    /// that did not come into force. The program does not write such a bucket: it refuses everything until time has caught up with it.
    pub fn end_overdrafts(
        &mut self,
        before: &abi::Policy,
        policy: &abi::Policy,
        totals: &[u32],
    ) -> Result<(), DataplaneError> {
        let now_q8 = gcra::time_q8(probe::now_ns());
        self.change_totals(totals, |index, state| {
            compile::settled_total(before, policy, index, state, now_q8)
        })
    }

    fn change_totals(
        &mut self,
        totals: &[u32],
        changed: impl Fn(u32, TotalState) -> TotalState,
    ) -> Result<(), DataplaneError> {
        for index in totals {
            let state =
                self.totals.get(index, 0).map_err(DataplaneError::map("read the buckets of a total"))?;
            let next = changed(*index, state);
            if next != state {
                self.totals
                    .set(*index, next, 0)
                    .map_err(DataplaneError::map("write the buckets of a total"))?;
            }
        }
        Ok(())
    }
}

fn held(shares: &[Share]) -> [u64; MAX_TOTALS] {
    let of_limit = |limit| {
        let places = [Party::Untracked, Party::Tracked].map(|party| Share::place(limit, party));
        shares.iter().flat_map(|share| places.map(|place| share.pool_q8[place])).fold(0, u64::saturating_add)
    };
    std::array::from_fn(of_limit)
}

fn spent(totals: &[Total; MAX_TOTALS], now_q8: u64) -> TotalState {
    let word = |total: &Total| match total.limit.tolerance_q8 {
        0 => 0,
        tolerance_q8 => now_q8.wrapping_add(tolerance_q8),
    };
    TotalState { tat_q8: totals.each_ref().map(word), ..TotalState::FULL }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cpus_hold_of_a_limit_is_added_up_for_sources_with_state_and_without() {
        let mut shares = [Share::EMPTY; 2];
        shares[0].pool_q8[Share::place(0, Party::Untracked)] = 5;
        shares[1].pool_q8[Share::place(0, Party::Proven)] = 7;
        shares[1].pool_q8[Share::place(1, Party::Untracked)] = 11;
        assert_eq!(held(&shares), [12, 11]);
    }
}
