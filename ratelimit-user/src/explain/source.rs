//! Where the kernel keeps what it knows of an address.

use std::net::IpAddr;

use ratelimit_common::{
    abi::{EntryKey, LimitSet, Policy, SourceKey},
    limit::{aggregation, prefilter, rate::Rate},
};

use super::{
    Ledger, Setting,
    account::{Words, ms},
    newcomers::Newcomers,
    report::Account,
    window,
};

/// An address, cut to the prefix that the policy takes for one source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) address: IpAddr,
    pub(super) key: SourceKey,
    pub(super) hash: u64,
}

/// Limits that a source has an account under.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'p> {
    /// 0 for those of every source, or one more than the index of a service.
    pub(super) number: u64,
    pub(super) set: &'p LimitSet,
    pub(super) rates: &'p [Rate],
}

impl Source {
    pub(super) fn of(address: IpAddr, policy: &Policy) -> Self {
        let source = &policy.source;
        let key = match address {
            IpAddr::V4(v4) => {
                let SourceKey { hi, lo } = SourceKey::from_v4(u32::from_ne_bytes(v4.octets()));
                SourceKey { hi, lo: lo & source.v4_mask }
            }
            IpAddr::V6(v6) => {
                aggregation::cut(SourceKey::from_octets(v6.octets()), source.v6_mask_hi, source.v6_mask_lo)
            }
        };
        Self { address, key, hash: prefilter::hash(key, policy.prefilter.secret) }
    }

    /// The limits of every source.
    pub(super) fn account<L: Ledger>(
        &self,
        ledger: &L,
        setting: &Setting<'_>,
        newcomers: &Newcomers<'_>,
    ) -> Result<Account, L::Error> {
        let rates: Vec<Rate> = setting.policy.source().limits().iter().map(|limit| *limit.rate()).collect();
        let group = Group { number: 0, set: &setting.kernel.source.set, rates: &rates };
        self.account_in(ledger, setting, &group, newcomers, 0)
    }

    /// Limits of a group, whose entry is made after so many others.
    pub(super) fn account_in<L: Ledger>(
        &self,
        ledger: &L,
        setting: &Setting<'_>,
        group: &Group<'_>,
        newcomers: &Newcomers<'_>,
        before: u64,
    ) -> Result<Account, L::Error> {
        let hash = match group.number {
            0 => self.hash,
            number => prefilter::group_hash(self.hash, number, setting.kernel.prefilter.secret),
        };
        let words = Words {
            entry: ledger.entry(&EntryKey { hi: self.key.hi, lo: self.key.lo, group: group.number })?,
            cell: ledger.cell(prefilter::cell_index(hash))?,
            tracked_until_q8: ledger.tracked_until_q8(prefilter::cell_index(hash))?,
            name: prefilter::negative_name(hash, setting.kernel.generation),
        };
        let mut account = Account::new(&words, group.set, group.rates, setting.now_q8());
        let windows = window::of_source(ledger, setting, self, group)?;
        account.limits.extend(windows.states);
        let entry_ns = if account.wants_entry(group.set) { newcomers.wait_ns(before) } else { 0 };
        // Windows are asked before anything is made.
        let window_ns = if windows.wanted { newcomers.wait_ns(0) } else { 0 };
        let wait_ns = entry_ns.max(window_ns);
        account.no_room_for_ms = (wait_ns > 0).then(|| ms(wait_ns));
        Ok(account)
    }
}
