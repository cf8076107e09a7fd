//! Drop events for refused packets.

use ratelimit_common::abi::{Policy, Reason, SourceKey};

use super::request::PacketCharge;
use crate::{
    report::{self, Refused},
    tables::Tables,
};

/// Sends the daemon a drop event for a packet that a limit refused, if one is due.
#[inline(always)]
pub fn report<T: Tables>(tables: &T, policy: &Policy, request: &PacketCharge, reason: Reason) {
    report::report(tables, policy, request.key, request.refused(reason), request.now_q8);
}

/// Sends the daemon a drop event for a refused packet of a source, if one is due.
#[inline(always)]
pub fn report_source<T: Tables>(
    tables: &T,
    policy: &Policy,
    hi: u64,
    lo: u64,
    refused: Refused,
    now_q8: u64,
) {
    report::report(tables, policy, SourceKey { hi, lo }, refused, now_q8);
}
