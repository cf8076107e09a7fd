//! Whose address it is, and what all addresses of that user have left together.

use std::net::IpAddr;

use ratelimit_common::{
    abi::{Cell, lease::lease_place, user::NO_USER},
    limit::gcra::ahead_q8,
};

use super::{
    Ledger, Setting,
    account::{self, Words},
    listing,
    report::{Account, UserState},
    window,
};

/// The user of a number from the lists: `NO_USER`, or one more than its index.
pub(super) fn state<L: Ledger>(
    ledger: &L,
    setting: &Setting<'_>,
    address: IpAddr,
    number: u16,
) -> Result<Option<UserState>, L::Error> {
    if number == NO_USER {
        return Ok(None);
    }
    let index = usize::from(number) - 1;
    let name = setting.names.users.iter().find(|(place, _)| *place == index).map(|(_, name)| name);
    let Some(user) = name.and_then(|name| setting.policy.users().get(name)) else { return Ok(None) };
    let set = ledger.user_limits(setting.kernel.tables, index as u32)?;
    // Users have no prefilter: their buckets are always there.
    let words =
        Words { entry: Some(ledger.user(index as u32)?), cell: Cell::FRESH, tracked_until_q8: 0, name: 0 };
    let pairs = account::pairs(&set, user.network(), setting.reserve);
    let mut limits = Account::of_pairs(&words, &set, &pairs, setting.now_q8()).limits;
    for (state, (_, place)) in limits.iter_mut().zip(&pairs).filter(|(_, (_, place))| set.is_leased(*place)) {
        let (lease, spent) = ledger.lease(lease_place(index as u32, *place as u32))?;
        let lasts = ahead_q8(lease.expires_q8, setting.now_q8()) != 0;
        let units = if lasts { lease.ceiling.saturating_sub(spent.used) } else { 0 };
        state.leased = Some(units);
        state.left += units;
        state.refused_for_ms = state.refused_for_ms.filter(|_| units == 0);
    }
    limits.extend(window::of_user(ledger, setting, index as u32, &set, user.network())?);
    Ok(Some(UserState {
        name: user.name().to_owned(),
        plan: user.plan().map(str::to_owned),
        prefix: listing::owned_by(setting.lists, address),
        limits,
    }))
}
