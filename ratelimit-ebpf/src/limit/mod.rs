//! Holding a packet to every limit that applies to it: those of its source, and the total of the service it is for.
//!
//! Everything is evaluated before anything is charged, so a packet that one limit refuses costs the others nothing. Charging
//! can still fail half way, when another CPU takes the last tokens in between: then nothing is refunded and the packet is
//! refused, which keeps the error on the safe side.

mod denial;
mod entry;
mod request;
mod standing;
mod total;
mod word;

use ratelimit_common::{
    abi::{Clock, Policy, Reason},
    limit::gcra,
};

use crate::{packet::Packet, tables::Tables};
use request::Request;
use standing::Standing;

/// Charges a packet to its source and its service. `now_ns` is the coarse clock's.
#[inline(always)]
pub fn limit<T: Tables>(tables: &T, policy: &Policy, packet: &Packet, len: u64, now_ns: u64) -> Reason {
    let mut request = Request::new(policy, packet, len, now_ns);
    // A denial holds for the lag of the coarse clock longer than it must, which only refuses more.
    if let Some(reason) = denial::check(tables, &request) {
        return reason;
    }
    if policy.clock() == Clock::Precise {
        request.now_q8 = gcra::time_q8(tables.now_ns(Clock::Precise));
    }
    let standing = match Standing::of(tables, &request) {
        Ok(standing) => standing,
        Err(reason) => return reason,
    };
    if let Err(reason) = total::charge(tables, &request, standing.party()) {
        return reason;
    }
    standing.charge(tables, &request)
}
