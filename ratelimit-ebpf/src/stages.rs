//! The stages of limiting as functions of the kernel program: see `limit::Stages` for why.
//!
//! Each is global, so the verifier checks it once and by itself. It may be called with any address of the right size, or none; that is
//! why each looks at what it got before it uses it. None of these can happen: a refusal is what it would come to.
#![expect(unsafe_code, reason = "addresses of plain data, which the verifier checks at each call")]

use ratelimit_common::abi::{Bucket, Policy, Reason, service::Party};
use ratelimit_ebpf::limit::{self, Request, Stages};

use crate::maps::Maps;

const REFUSED: u32 = Reason::TableFull as u32;

/// References to what a stage was called with.
#[inline(always)]
fn checked<'c>(policy: *const Policy, request: *const Request) -> Option<(&'c Policy, &'c Request)> {
    // SAFETY: not null by `as_ref`, and of full size or the verifier would have refused the call. Callers hand out addresses of
    // references that outlive it.
    unsafe { Some((policy.as_ref()?, request.as_ref()?)) }
}

/// Whether an entry would admit the packet.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn judge_entry(policy: *const Policy, request: *const Request, bucket: *mut Bucket) -> u32 {
    match checked(policy, request) {
        Some((policy, request)) if !bucket.is_null() => {
            limit::judge_entry(&Maps, policy, request, bucket) as u32
        }
        _ => REFUSED,
    }
}

/// Charges an entry.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_entry(policy: *const Policy, request: *const Request, bucket: *mut Bucket) -> u32 {
    match checked(policy, request) {
        Some((policy, request)) if !bucket.is_null() => {
            limit::charge_entry(&Maps, policy, request, bucket) as u32
        }
        _ => REFUSED,
    }
}

/// Makes an entry.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn open_entry(policy: *const Policy, request: *const Request) -> u32 {
    match checked(policy, request) {
        Some((policy, request)) => limit::open_entry(&Maps, policy, request) as u32,
        None => REFUSED,
    }
}

/// Charges what a packet shares with others.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_crowd(policy: *const Policy, request: *const Request, party: u32) -> u32 {
    let party = if party == Party::Known as u32 { Party::Known } else { Party::Stranger };
    match checked(policy, request) {
        Some((policy, request)) => limit::charge_crowd(&Maps, policy, request, party) as u32,
        None => REFUSED,
    }
}

/// Counts a SYN.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn count_syn(policy: *const Policy, request: *const Request) -> u32 {
    match checked(policy, request) {
        Some((policy, request)) => limit::count_syn(&Maps, policy, request) as u32,
        None => 0,
    }
}

impl Stages for Maps {
    #[inline(always)]
    fn judge_entry(&self, policy: &Policy, request: &Request, bucket: *mut Bucket) -> Reason {
        Reason::from_code(judge_entry(policy, request, bucket))
    }

    #[inline(always)]
    fn charge_entry(&self, policy: &Policy, request: &Request, bucket: *mut Bucket) -> Reason {
        Reason::from_code(charge_entry(policy, request, bucket))
    }

    #[inline(always)]
    fn open_entry(&self, policy: &Policy, request: &Request) -> Reason {
        Reason::from_code(open_entry(policy, request))
    }

    #[inline(always)]
    fn charge_crowd(&self, policy: &Policy, request: &Request, party: Party) -> Reason {
        Reason::from_code(charge_crowd(policy, request, party as u32))
    }

    #[inline(always)]
    fn count_syn(&self, policy: &Policy, request: &Request) -> bool {
        count_syn(policy, request) != 0
    }
}
