//! The stages of limiting as functions of the kernel program: see `limit::Stages` for why.
//!
//! Each is global, so the verifier checks it once and by itself. It may be called with any address of the right size, or none; that is
//! why each looks at what it got before it uses it. None of these can happen: a refusal is what it would come to.
#![expect(unsafe_code, reason = "addresses of plain data, which the verifier checks at each call")]

use aya_ebpf::{bindings::xdp_md, programs::XdpContext};
use ratelimit_common::abi::{
    Bucket, LimitSet, Policy, Reason, SourceKey, WindowLimit, WindowState, service::Party,
};
use ratelimit_ebpf::{
    destination,
    frame::{Frame, Link, MAX_OFFSET},
    limit::{self, Ask, Proof, Request, Scope, Stages},
    link,
    packet::{Family, Packet},
    report::{Refused, report as report_source},
    segment::Segment,
};

use crate::{maps::Maps, wire::proof};

const REFUSED: u32 = Reason::TableFull as u32;
/// In place of a reason: the source needs an entry.
const NEEDS_ENTRY: u32 = u32::MAX;

/// A reference to what a stage was called with.
#[inline(always)]
fn the<'c, D>(data: *const D) -> Option<&'c D> {
    // SAFETY: not null by `as_ref`, and of full size or the verifier would have refused the call. Callers hand out addresses of
    // references that outlive it.
    unsafe { data.as_ref() }
}

/// The same for what a stage may change.
#[inline(always)]
fn the_mut<'c, D>(data: *mut D) -> Option<&'c mut D> {
    // SAFETY: as above; the caller lends its only reference.
    unsafe { data.as_mut() }
}

/// The service of a packet whose port is shared, by its destination. The verifier knows what `xdp_md` is: the address is the kernel's.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn service_at(ctx: *mut xdp_md, table: u32, class: u32) -> u32 {
    destination::service(&Maps, &Frame::of_context(Link::Ethernet, &XdpContext::new(ctx)), table, class)
}

/// The same for frames that are IP packets.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn service_at_ip(ctx: *mut xdp_md, table: u32, class: u32) -> u32 {
    destination::service(&Maps, &Frame::of_context(Link::Ip, &XdpContext::new(ctx)), table, class)
}

/// What a segment can show for itself.
#[inline(always)]
pub(crate) fn proof_of(ctx: &XdpContext, packet: &Packet) -> Proof {
    let family = packet.source.family as u32;
    Proof::from_code(segment_proof(ctx.ctx, family, packet.network_at as u32, packet.transport_at as u32))
}

/// The same as a function of its own, which reads the segment once more: what a lookup needs on the stack does not fit beside what limits need.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn segment_proof(ctx: *mut xdp_md, family: u32, network_at: u32, transport_at: u32) -> u32 {
    let family = if family == Family::V4 as u32 { Family::V4 } else { Family::V6 };
    let (network_at, transport_at) = (network_at as usize & MAX_OFFSET, transport_at as usize & MAX_OFFSET);
    let ctx = XdpContext::new(ctx);
    // Where the headers are is known, whatever stands before them.
    match Segment::at(&Frame::of_context(Link::Ethernet, &ctx), family, network_at, transport_at) {
        Some(segment) => proof(&ctx, &segment) as u32,
        None => Proof::Nothing as u32,
    }
}

/// Whether an entry would admit the packet.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn judge_entry(
    policy: *const Policy,
    set: *const LimitSet,
    request: *const Request,
    bucket: *mut Bucket,
) -> u32 {
    match (the(policy), the(set), the(request)) {
        (Some(policy), Some(set), Some(request)) if !bucket.is_null() => {
            limit::judge_entry(&Maps, policy, set, request, bucket) as u32
        }
        _ => REFUSED,
    }
}

/// Charges an entry.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_entry(set: *const LimitSet, request: *const Request, bucket: *mut Bucket) -> u32 {
    match (the(set), the(request)) {
        (Some(set), Some(request)) if !bucket.is_null() => {
            limit::charge_entry(&Maps, set, request, bucket) as u32
        }
        _ => REFUSED,
    }
}

/// Charges one soft limit of an entry.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_soft(
    set: *const LimitSet,
    request: *const Request,
    bucket: *mut Bucket,
    index: u32,
) -> u32 {
    match (the(set), the(request)) {
        (Some(set), Some(request)) if !bucket.is_null() => {
            limit::charge_soft(&Maps, set, request, bucket, index as usize) as u32
        }
        _ => REFUSED,
    }
}

/// Makes an entry.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn open_entry(policy: *const Policy, set: *const LimitSet, request: *const Request) -> u32 {
    match (the(policy), the(set), the(request)) {
        (Some(policy), Some(set), Some(request)) => limit::open_entry(&Maps, policy, set, request) as u32,
        _ => REFUSED,
    }
}

/// Whether what one source may have of the service would admit the packet.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn judge_service(policy: *const Policy, request: *mut Request) -> u32 {
    match (the(policy), the_mut(request)) {
        (Some(policy), Some(request)) => limit::judge_service(&Maps, policy, request) as u32,
        _ => REFUSED,
    }
}

/// Charges that.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_service(policy: *const Policy, request: *mut Request) -> u32 {
    match (the(policy), the_mut(request)) {
        (Some(policy), Some(request)) => {
            limit::charge_service(&Maps, policy, request).map_or(NEEDS_ENTRY, |reason| reason as u32)
        }
        _ => REFUSED,
    }
}

/// Makes the entry that it needs.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn open_service(policy: *const Policy, request: *mut Request) -> u32 {
    match (the(policy), the_mut(request)) {
        (Some(policy), Some(request)) => limit::open_service(&Maps, policy, request) as u32,
        _ => REFUSED,
    }
}

/// Whether the limits of its user would admit the packet.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn judge_user(policy: *const Policy, request: *mut Request) -> u32 {
    match (the(policy), the_mut(request)) {
        (Some(policy), Some(request)) => limit::judge_user(&Maps, policy, request) as u32,
        _ => REFUSED,
    }
}

/// Charges them.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_user(policy: *const Policy, request: *mut Request) -> u32 {
    match (the(policy), the_mut(request)) {
        (Some(policy), Some(request)) => limit::charge_user(&Maps, policy, request) as u32,
        _ => REFUSED,
    }
}

/// Charges what a packet shares with others.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_crowd(policy: *const Policy, request: *const Request, party: u32) -> u32 {
    match (the(policy), the(request)) {
        (Some(policy), Some(request)) => {
            limit::charge_crowd(&Maps, policy, request, Party::from_code(party)) as u32
        }
        _ => REFUSED,
    }
}

/// Whether this CPU has enough of the host's total.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn stock_host(policy: *const Policy, len: u64, now_q8: u64, party: u32) -> u32 {
    match the(policy) {
        Some(policy) => limit::stock_host(&Maps, policy, len, now_q8, Party::from_code(party)) as u32,
        None => 0,
    }
}

/// Spends it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn spend_host(policy: *const Policy, len: u64, party: u32) -> u32 {
    if let Some(policy) = the(policy) {
        limit::spend_host(&Maps, policy, len, Party::from_code(party));
    }
    0
}

/// What becomes of a frame that has no source.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn judge_link(ctx: *mut xdp_md, policy: *const Policy, passes: u32) -> u32 {
    judge_link_of(Link::Ethernet, ctx, policy, passes)
}

/// The same for links whose frames are IP packets.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn judge_link_ip(ctx: *mut xdp_md, policy: *const Policy, passes: u32) -> u32 {
    judge_link_of(Link::Ip, ctx, policy, passes)
}

#[inline(always)]
fn judge_link_of(link: Link, ctx: *mut xdp_md, policy: *const Policy, passes: u32) -> u32 {
    let Some(policy) = the(policy) else { return REFUSED };
    let context = XdpContext::new(ctx);
    let frame = Frame::of_context(link, &context);
    let interface = Frame::interface(&context);
    link::judge(&Maps, &frame, policy, interface, Reason::from_code(passes)) as u32
}

/// Counts a SYN.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn count_syn(policy: *const Policy, request: *const Request) -> u32 {
    match (the(policy), the(request)) {
        (Some(policy), Some(request)) => limit::count_syn(&Maps, policy, request) as u32,
        _ => 0,
    }
}

/// Asks the windows of one scope; charges them if that is not 0.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ask_windows(policy: *const Policy, request: *const Request, scope: u32, charging: u32) -> u32 {
    match (the(policy), the(request)) {
        (Some(policy), Some(request)) => {
            limit::ask_windows(&Maps, policy, request, Scope::from_code(scope), charging != 0) as u32
        }
        _ => REFUSED,
    }
}

/// Asks one window.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ask_window(limit: *const WindowLimit, state: *mut WindowState, ask: *const Ask) -> u32 {
    match (the(limit), the(ask)) {
        (Some(limit), Some(ask)) if !state.is_null() => limit::ask_window(&Maps, limit, state, ask) as u32,
        _ => REFUSED,
    }
}

/// Tells the daemon of a packet that a limit refused.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn report(policy: *const Policy, request: *const Request, reason: u32) -> u32 {
    if let (Some(policy), Some(request)) = (the(policy), the(request)) {
        limit::report(&Maps, policy, request, Reason::from_code(reason));
    }
    0
}

/// The same for a packet that no limit was asked about.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn report_unasked(policy: *const Policy, hi: u64, lo: u64, refused: u64, now_q8: u64) -> u32 {
    if let Some(policy) = the(policy) {
        report_source(&Maps, policy, SourceKey { hi, lo }, Refused::from_bits(refused), now_q8);
    }
    0
}

impl Stages for Maps {
    #[inline(always)]
    fn judge_entry(&self, policy: &Policy, set: &LimitSet, request: &Request, bucket: *mut Bucket) -> Reason {
        Reason::from_code(judge_entry(policy, set, request, bucket))
    }

    #[inline(always)]
    fn charge_entry(&self, set: &LimitSet, request: &Request, bucket: *mut Bucket) -> Reason {
        match Reason::from_code(charge_entry(set, request, bucket)) {
            Reason::Conforming if set.has_soft() => limit::charge_margins(set, |index| {
                Reason::from_code(charge_soft(set, request, bucket, index))
            }),
            reason => reason,
        }
    }

    #[inline(always)]
    fn open_entry(&self, policy: &Policy, set: &LimitSet, request: &Request) -> Reason {
        Reason::from_code(open_entry(policy, set, request))
    }

    #[inline(always)]
    fn judge_service(&self, policy: &Policy, request: &mut Request) -> Reason {
        Reason::from_code(judge_service(policy, request))
    }

    #[inline(always)]
    fn charge_service(&self, policy: &Policy, request: &mut Request) -> Option<Reason> {
        match charge_service(policy, request) {
            NEEDS_ENTRY => None,
            code => Some(Reason::from_code(code)),
        }
    }

    #[inline(always)]
    fn open_service(&self, policy: &Policy, request: &mut Request) -> Reason {
        Reason::from_code(open_service(policy, request))
    }

    #[inline(always)]
    fn judge_user(&self, policy: &Policy, request: &mut Request) -> Reason {
        Reason::from_code(judge_user(policy, request))
    }

    #[inline(always)]
    fn charge_user(&self, policy: &Policy, request: &mut Request) -> Reason {
        Reason::from_code(charge_user(policy, request))
    }

    #[inline(always)]
    fn charge_crowd(&self, policy: &Policy, request: &Request, party: Party) -> Reason {
        Reason::from_code(charge_crowd(policy, request, party as u32))
    }

    #[inline(always)]
    fn stock_host(&self, policy: &Policy, len: u64, now_q8: u64, party: Party) -> bool {
        stock_host(policy, len, now_q8, party as u32) != 0
    }

    #[inline(always)]
    fn spend_host(&self, policy: &Policy, len: u64, party: Party) {
        spend_host(policy, len, party as u32);
    }

    #[inline(always)]
    fn count_syn(&self, policy: &Policy, request: &Request) -> bool {
        count_syn(policy, request) != 0
    }

    #[inline(always)]
    fn ask_windows(&self, policy: &Policy, request: &Request, scope: Scope, charging: bool) -> Reason {
        Reason::from_code(ask_windows(policy, request, scope as u32, charging as u32))
    }

    #[inline(always)]
    fn ask_window(&self, limit: &WindowLimit, state: *mut WindowState, ask: &Ask) -> Reason {
        Reason::from_code(ask_window(limit, state, ask))
    }

    #[inline(always)]
    fn report(&self, policy: &Policy, request: &Request, reason: Reason) {
        report(policy, request, reason as u32);
    }

    #[inline(always)]
    fn report_unasked(&self, policy: &Policy, source: SourceKey, refused: Refused, now_q8: u64) {
        report_unasked(policy, source.hi, source.lo, refused.to_bits(), now_q8);
    }
}
