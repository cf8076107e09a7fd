//! The limits of a user, over all its addresses.

use ratelimit_common::abi::{LimitSet, Policy, Reason, user::NO_USER};

use super::{lease, leaves::Leaves, request::PacketCharge};

/// Whether the limits of the packet's user would admit the packet.
#[inline(always)]
pub fn judge<T: Leaves>(tables: &T, policy: &Policy, request: &mut PacketCharge) -> Reason {
    match user(tables, policy, request) {
        Some((set, bucket)) => {
            let user = request.user as u32 - 1;
            let judge = |request: &mut PacketCharge| {
                if set.has_leased() {
                    lease::judge(tables, set, request, user);
                }
                tables.judge_entry(policy, set, request, bucket)
            };
            match request.as_user(policy, set, judge) {
                Reason::Conforming => Reason::Conforming,
                _ => Reason::LimitUser,
            }
        }
        None => Reason::Conforming,
    }
}

/// Charges the limits of the packet's user.
#[inline(always)]
pub fn charge<T: Leaves>(tables: &T, policy: &Policy, request: &mut PacketCharge) -> Reason {
    match user(tables, policy, request) {
        Some((set, bucket)) => {
            let user = request.user as u32 - 1;
            let charge = |request: &mut PacketCharge| {
                if set.has_leased() {
                    lease::charge(tables, set, request, user);
                }
                tables.charge_limits(set, request, bucket)
            };
            match request.as_user(policy, set, charge) {
                reason @ (Reason::Conforming | Reason::SoftMargin | Reason::Contended) => reason,
                _ => Reason::LimitUser,
            }
        }
        None => Reason::Conforming,
    }
}

/// The limits of the user and its buckets, which all its addresses share.
#[inline(always)]
fn user<'t, T: Leaves>(
    tables: &'t T,
    policy: &Policy,
    request: &PacketCharge,
) -> Option<(&'t LimitSet, T::Bucket)> {
    if request.user == NO_USER || policy.user_count == 0 {
        return None;
    }
    let index = request.user as u32 - 1;
    let set = tables.user_limits(policy.tables, index)?;
    if set.limit_count == 0 { None } else { Some((set, tables.user(index)?)) }
}
