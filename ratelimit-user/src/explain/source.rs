//! The keys under which the kernel's tables have the state of an address.

use std::net::IpAddr;

use ratelimit_common::{
    abi::{LimitSet, Policy, Reason, SourceKey},
    limit::{prefilter, rate::Rate},
};
use ratelimit_ebpf::{
    limit::Sender,
    packet::{Address, Family},
};

use super::{
    ExplainContext,
    record::ReadRecord,
    refusals::Refusals,
    remembered::{Remembered, Row},
    report::SourceState,
    source_state::{self, RememberedSource, Wait, counts_every_packet},
    window,
};

/// An address, cut to the prefix of its source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) address: IpAddr,
    /// The address in the form that the packet path uses.
    pub(super) seen: Address,
    pub(super) key: SourceKey,
    pub(super) hash: u64,
}

/// A group of limits that a source has state for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'p> {
    /// 0 for the limits of every source, or one more than the index of a service.
    pub(super) number: u64,
    /// The name of the service, if the group is a service's.
    pub(super) service: Option<&'p str>,
    pub(super) set: &'p LimitSet,
    pub(super) rates: &'p [Rate],
}

impl Source {
    pub(super) fn of(address: IpAddr, policy: &Policy) -> Self {
        let seen = match address {
            IpAddr::V4(v4) => Address::v4(u32::from_ne_bytes(v4.octets())),
            IpAddr::V6(v6) => Address { family: Family::V6, key: SourceKey::from_octets(v6.octets()) },
        };
        let key = Sender::key_of(policy, seen);
        Self { address, seen, key, hash: prefilter::hash(key, policy.prefilter.secret) }
    }

    /// The state of the source under the limits of every source.
    pub(super) fn account<R: Remembered>(
        &self,
        record: &ReadRecord<'_, R>,
        setting: &ExplainContext<'_>,
        refusals: &Refusals,
        wait: &Wait<'_>,
    ) -> SourceState {
        let rates: Vec<Rate> = setting.policy.source().limits().iter().map(|limit| *limit.rate()).collect();
        let group = Group { number: 0, service: None, set: &setting.kernel.source.set, rates: &rates };
        self.account_in(record, setting, &group, refusals, wait)
    }

    /// The state of the source under the limits of a group.
    pub(super) fn account_in<R: Remembered>(
        &self,
        record: &ReadRecord<'_, R>,
        setting: &ExplainContext<'_>,
        group: &Group<'_>,
        refusals: &Refusals,
        wait: &Wait<'_>,
    ) -> SourceState {
        let mut account = self.levels_in(record, setting, group, wait);
        let plain = group.rates.iter().any(|rate| counts_every_packet(rate.meter as u32));
        account.no_room_for_ms = refusals.for_ms(Reason::NewSourceBudget.name(), group.service, plain);
        // A negative entry is renewed for as long as the limit behind it refuses.
        if let Some(denied) = &mut account.denied
            && let Some(for_ms) = refusals.for_ms(&denied.reason, group.service, true)
        {
            denied.for_ms = for_ms;
        }
        account
    }

    /// What is left of the limits of a group, whether or not there is room for an entry.
    pub(super) fn levels_in<R: Remembered>(
        &self,
        record: &ReadRecord<'_, R>,
        setting: &ExplainContext<'_>,
        group: &Group<'_>,
        wait: &Wait<'_>,
    ) -> SourceState {
        let hash = match group.number {
            0 => self.hash,
            number => prefilter::group_hash(self.hash, number, setting.kernel.prefilter.secret),
        };
        let cell = prefilter::cell_index(hash);
        let [tracked_until_q8, ..] = record.place(Row::Mark(cell));
        let entry = Row::Source([self.key.hi, self.key.lo, group.number]);
        let known = RememberedSource {
            entry: record.row(entry),
            cell: record.place(Row::Cell(cell)),
            tracked_until_q8,
            name: prefilter::negative_name(hash, setting.kernel.generation),
        };
        let pairs = source_state::pairs(group.set, group.rates, None);
        let mut account = SourceState::of_pairs(&known, group.set, &pairs, setting.now_q8());
        for (state, (rate, place)) in account.limits.iter_mut().zip(&pairs) {
            let words = source_state::places(group.set, rate, *place).into_iter().map(|place| (entry, place));
            state.refused_for_ms = wait(group.number as u32, rate.meter, words.collect());
        }
        account.limits.extend(window::of_source(record, setting, self, group, wait));
        account
    }
}
