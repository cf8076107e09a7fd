//! What a packet shares with others: the prefixes around its source, the service it is for, and the host.

use ratelimit_common::abi::{Policy, Reason, service::Party};

use super::{ladder, request::Request, total::Account};
use crate::tables::Tables;

/// Charges all of it, or says what refuses.
#[inline(always)]
pub fn charge<T: Tables>(tables: &T, policy: &Policy, request: &Request, party: Party) -> Reason {
    let (len, now_q8) = (request.len as u64, request.now_q8);
    let service = Account::of(tables, policy, request.service as u32);
    let host = Account::of_host(tables, policy);
    // Most packets of a spoofed flood end here, at this CPU's own words.
    if let Some(account) = &service
        && account.is_spent(tables, len, now_q8, party)
    {
        return Reason::ServiceTotal;
    }
    if let Some(account) = &host
        && account.is_spent(tables, len, now_q8, party)
    {
        return Reason::HostTotal;
    }
    if !ladder::admits(tables, policy, request, party) {
        return Reason::LimitPrefix;
    }
    // Both have their portions before either is spent.
    if let Some(account) = &service
        && !account.stock(tables, len, now_q8, party)
    {
        return Reason::ServiceTotal;
    }
    if let Some(account) = &host
        && !account.stock(tables, len, now_q8, party)
    {
        return Reason::HostTotal;
    }
    if let Some(account) = &service {
        account.spend(tables, len, party);
    }
    if let Some(account) = &host {
        account.spend(tables, len, party);
    }
    if ladder::charge(tables, policy, request, party) { Reason::Conforming } else { Reason::LimitPrefix }
}

/// Charges the host alone, for a packet that a service lets pass although a limit refuses it; false if nothing is left. Nobody vouches for it.
#[inline(always)]
pub fn charge_host<T: Tables>(tables: &T, policy: &Policy, len: u64, now_q8: u64) -> bool {
    let Some(host) = Account::of_host(tables, policy) else { return true };
    let party = Party::Stranger;
    if !host.stock(tables, len, now_q8, party) {
        return false;
    }
    host.spend(tables, len, party);
    true
}
