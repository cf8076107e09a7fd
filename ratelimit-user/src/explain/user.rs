//! The user of an address, and what is left for all addresses of that user together.

use std::net::IpAddr;

use ratelimit_common::{
    abi::{lease::lease_place, service::NO_SERVICE},
    limit::gcra::ahead_q8,
};

use super::{
    ExplainContext, listing,
    record::ReadRecord,
    remembered::{Remembered, Row, RowWords},
    report::{SourceState, UserState},
    source_state::{self, RememberedSource, Wait},
    window,
};

/// The state of the user that the lists name for the address.
pub(super) fn state<R: Remembered>(
    record: &ReadRecord<'_, R>,
    setting: &ExplainContext<'_>,
    address: IpAddr,
    wait: &Wait<'_>,
) -> Option<UserState> {
    let index = record.listed?.user.checked_sub(1).map(u32::from)?;
    let name =
        setting.names.users.iter().find(|(place, _)| *place == index as usize).map(|(_, name)| name)?;
    let user = setting.policy.users().get(name)?;
    let set = &record.user_limits;
    // Users have no prefilter: their buckets always exist.
    let row = Row::User(index);
    let known = RememberedSource {
        entry: Some(record.place(row)),
        cell: RowWords::default(),
        tracked_until_q8: 0,
        name: 0,
    };
    let pairs = source_state::pairs(set, user.network(), setting.reserve);
    let mut limits = SourceState::of_pairs(&known, set, &pairs, setting.now_q8()).limits;
    for (state, (rate, place)) in limits.iter_mut().zip(&pairs) {
        let words = source_state::places(set, rate, *place).into_iter().map(|place| (row, place));
        state.refused_for_ms = wait(NO_SERVICE, rate.meter, words.collect());
    }
    for (state, (_, place)) in limits.iter_mut().zip(&pairs).filter(|(_, (_, place))| set.is_leased(*place)) {
        let at = lease_place(index, *place as u32);
        let (lease, [used, ..]) = (record.lease(at), record.place(Row::Spent(at)));
        let lasts = ahead_q8(lease.expires_q8, setting.now_q8()) != 0;
        let units = if lasts { lease.ceiling.saturating_sub(used) } else { 0 };
        state.leased = Some(units);
        state.left += units;
    }
    limits.extend(window::of_user(record, setting, index, user.network(), wait));
    Some(UserState {
        name: user.name().to_owned(),
        plan: user.plan().map(str::to_owned),
        prefix: listing::owned_by(setting.lists, address),
        limits,
    })
}
