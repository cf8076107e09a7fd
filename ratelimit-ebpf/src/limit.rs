//! Holding a source to all its limits at once.
//!
//! Every limit is evaluated before any is charged, so a packet that one of them refuses costs the others nothing.
//! Charging can still fail half way, when another CPU takes the last tokens in between: then nothing is refunded and the
//! packet is refused, which keeps the error on the safe side.

use ratelimit_common::{
    abi::{Bucket, Limit, MAX_LIMITS, Meter, Policy, Reason, SourceKey},
    limit::gcra::{self, Outcome},
};

use crate::{
    packet::{Address, Packet, Transport},
    tables::{InsertError, Tables},
};

/// Attempts to store one word. Each failed attempt means another CPU succeeded, so the bucket moves on
/// regardless; what is lost after the last is one packet, which counts as not conforming.
const ATTEMPTS: usize = 4;

/// One packet's question to the limits.
struct Request<'p> {
    policy: &'p Policy,
    packet: &'p Packet,
    len: u64,
    now_q8: u64,
}

/// Charges a packet to its source.
#[inline(always)]
pub fn limit<T: Tables>(tables: &T, policy: &Policy, packet: &Packet, len: u64, now_ns: u64) -> Reason {
    let key = source_key(policy, packet.source);
    let request = Request { policy, packet, len, now_q8: gcra::time_q8(now_ns) };
    if let Some(bucket) = tables.bucket(&key) {
        return spend(tables, bucket, &request);
    }
    let opened = match open(&request) {
        Ok(opened) => opened,
        Err(reason) => return reason,
    };
    match tables.insert(&key, &opened) {
        Ok(()) => Reason::Conforming,
        Err(InsertError::Full) => Reason::TableFull,
        Err(InsertError::Exists) => match tables.bucket(&key) {
            Some(bucket) => spend(tables, bucket, &request),
            None => Reason::TableFull,
        },
    }
}

#[inline(always)]
fn source_key(policy: &Policy, source: Address) -> SourceKey {
    match source {
        Address::V4(addr) => SourceKey::from_v4(addr & policy.v4_mask),
        Address::V6(hi, lo) => SourceKey { hi: hi & policy.v6_mask_hi, lo: lo & policy.v6_mask_lo },
    }
}

/// The first bucket of a source: full, less this packet.
#[inline(always)]
fn open(request: &Request<'_>) -> Result<Bucket, Reason> {
    let mut bucket = Bucket { tat_q8: [request.now_q8; MAX_LIMITS] };
    for index in 0..MAX_LIMITS {
        let Some(limit) = request.limit(index) else { break };
        let Some(charge) = request.charge_q8(limit) else { continue };
        match gcra::take(request.now_q8, limit, request.now_q8, charge) {
            Outcome::Conforms { tat_q8 } => bucket.tat_q8[index] = tat_q8,
            Outcome::Refused | Outcome::Overdrawn { .. } => return Err(refusal(limit)),
        }
    }
    Ok(bucket)
}

/// Evaluates all limits, then charges all.
#[inline(always)]
fn spend<T: Tables>(tables: &T, bucket: T::Bucket, request: &Request<'_>) -> Reason {
    for index in 0..MAX_LIMITS {
        let Some(limit) = request.limit(index) else { break };
        let Some(charge) = request.charge_q8(limit) else { continue };
        let seen = tables.load(bucket, index);
        match gcra::take(seen, limit, request.now_q8, charge) {
            Outcome::Conforms { .. } => {}
            Outcome::Refused => return refusal(limit),
            Outcome::Overdrawn { tat_q8 } => {
                // Losing this race is fine: somebody else has settled the bucket.
                tables.compare_exchange(bucket, index, seen, tat_q8);
                return refusal(limit);
            }
        }
    }
    for index in 0..MAX_LIMITS {
        let Some(limit) = request.limit(index) else { break };
        let Some(charge) = request.charge_q8(limit) else { continue };
        if let Err(reason) = charge_one(tables, bucket, index, limit, request.now_q8, charge) {
            return reason;
        }
    }
    Reason::Conforming
}

/// Moves one word by compare-and-exchange.
#[inline(always)]
fn charge_one<T: Tables>(
    tables: &T,
    bucket: T::Bucket,
    index: usize,
    limit: &Limit,
    now_q8: u64,
    charge_q8: u64,
) -> Result<(), Reason> {
    for _ in 0..ATTEMPTS {
        let seen = tables.load(bucket, index);
        let Outcome::Conforms { tat_q8 } = gcra::take(seen, limit, now_q8, charge_q8) else {
            return Err(refusal(limit));
        };
        if tables.compare_exchange(bucket, index, seen, tat_q8) {
            return Ok(());
        }
    }
    Err(Reason::Contended)
}

#[inline(always)]
fn refusal(limit: &Limit) -> Reason {
    if limit.meter == Meter::Bytes as u32 {
        Reason::LimitBytes
    } else if limit.meter == Meter::Syns as u32 {
        Reason::LimitSyns
    } else {
        Reason::LimitPackets
    }
}

impl<'p> Request<'p> {
    #[inline(always)]
    fn limit(&self, index: usize) -> Option<&'p Limit> {
        if index < self.policy.limit_count as usize { self.policy.limits.get(index) } else { None }
    }

    /// What this packet costs under a limit; `None` if the limit does not apply to it.
    #[inline(always)]
    fn charge_q8(&self, limit: &Limit) -> Option<u64> {
        if limit.meter == Meter::Bytes as u32 {
            return Some(gcra::charge_q8(limit, self.len));
        }
        if limit.meter == Meter::Syns as u32 && self.packet.transport != Transport::TcpSyn {
            return None;
        }
        Some(limit.cost_fp)
    }
}
