//! Where the kernel keeps what it knows of an address.

use std::net::IpAddr;

use ratelimit_common::{
    abi::{EntryKey, LimitSet, Policy, SourceKey},
    limit::{gate, ladder, rate::Rate},
};

use super::{Ledger, Setting, account::Words, report::Account};

/// An address, cut to the prefix that the policy takes for one source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) address: IpAddr,
    pub(super) key: SourceKey,
    hash: u64,
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
                ladder::cut(SourceKey::from_octets(v6.octets()), source.v6_mask_hi, source.v6_mask_lo)
            }
        };
        Self { address, key, hash: gate::hash(key, policy.gate.secret) }
    }

    /// The limits of every source.
    pub(super) fn account<L: Ledger>(&self, ledger: &L, setting: &Setting<'_>) -> Result<Account, L::Error> {
        let rates: Vec<Rate> = setting.policy.source().limits().iter().map(|limit| *limit.rate()).collect();
        self.account_in(ledger, setting, 0, &setting.kernel.source.set, &rates)
    }

    /// Limits of a group: 0 for those of every source, or one more than the index of a service.
    pub(super) fn account_in<L: Ledger>(
        &self,
        ledger: &L,
        setting: &Setting<'_>,
        group: u64,
        set: &LimitSet,
        rates: &[Rate],
    ) -> Result<Account, L::Error> {
        let hash = match group {
            0 => self.hash,
            group => gate::group_hash(self.hash, group, setting.kernel.gate.secret),
        };
        let words = Words {
            entry: ledger.entry(&EntryKey { hi: self.key.hi, lo: self.key.lo, group })?,
            cell: ledger.cell(gate::cell_index(hash))?,
            tracked_until_q8: ledger.tracked_until_q8(gate::cell_index(hash))?,
            name: gate::denial_name(hash, setting.kernel.generation),
        };
        Ok(Account::new(&words, set, rates, setting.now_q8()))
    }
}
