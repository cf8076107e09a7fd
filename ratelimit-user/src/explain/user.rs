//! Whose address it is, and what all addresses of that user have left together.

use std::net::IpAddr;

use ratelimit_common::abi::{Cell, user::NO_USER};

use super::{
    Ledger, Setting,
    account::Words,
    listing,
    report::{Account, UserState},
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
    // Users have no gate: their buckets are always there.
    let words =
        Words { entry: Some(ledger.user(index as u32)?), cell: Cell::FRESH, tracked_until_q8: 0, name: 0 };
    Ok(Some(UserState {
        name: user.name().to_owned(),
        plan: user.plan().map(str::to_owned),
        prefix: listing::owned_by(setting.lists, address),
        limits: Account::new(&words, &set, user.network(), setting.now_q8()).limits,
    }))
}
