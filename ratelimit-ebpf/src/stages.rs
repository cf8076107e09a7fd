//! The stages of limiting as functions of the kernel program: `limit::Leaves` has the reasons.
//!
//! Each function is global, so the verifier checks it once and by itself. The verifier assumes that it may be called with any address of the right size, or
//! none, so each function checks its addresses first. No call has a missing address; it would count as a refusal.
#![expect(unsafe_code, reason = "addresses of plain data, which the verifier checks at each call")]

use aya_ebpf::{bindings::xdp_md, programs::XdpContext};
use ratelimit_common::abi::{Bucket, LimitSet, Policy, Reason, WindowLimit, WindowState, service::Party};
use ratelimit_ebpf::{
    express,
    frame::{Frame, Link, MAX_OFFSET},
    limit::{self, Leaves, PacketCharge, Precedence, Proof, Scope, Sender, Stages, Weight, WindowCharge},
    link,
    packet::{Family, Packet, ends},
    report::Refused,
    segment::Segment,
    service,
};

use crate::{cpu::Cpu, kernel_tables::Maps, sockets};

/// An argument of a stage, and the number or address that it is passed as.
trait Argument: Sized {
    type Passed;
    fn pass(self) -> Self::Passed;
    /// The argument of a number or address; `None` if the address is null.
    fn receive(passed: Self::Passed) -> Option<Self>;
}

impl<D> Argument for &D {
    type Passed = *const D;

    #[inline(always)]
    fn pass(self) -> *const D {
        self
    }

    #[inline(always)]
    fn receive(data: *const D) -> Option<Self> {
        // SAFETY: not null by `as_ref`, and of full size or the verifier would have refused the call. Callers hand out addresses of
        // references that outlive it.
        unsafe { data.as_ref() }
    }
}

impl<D> Argument for &mut D {
    type Passed = *mut D;

    #[inline(always)]
    fn pass(self) -> *mut D {
        self
    }

    #[inline(always)]
    fn receive(data: *mut D) -> Option<Self> {
        // SAFETY: as for `&D`; the caller lends its only reference.
        unsafe { data.as_mut() }
    }
}

/// A map value that other CPUs change: the packet path refers to it by its address.
impl<D> Argument for *mut D {
    type Passed = *mut D;

    #[inline(always)]
    fn pass(self) -> *mut D {
        self
    }

    #[inline(always)]
    fn receive(data: *mut D) -> Option<Self> {
        if data.is_null() { None } else { Some(data) }
    }
}

/// Makes types be passed as numbers.
macro_rules! numbers {
    ($($type:ty as $passed:ty: $pass:expr, $receive:expr;)*) => {$(
        impl Argument for $type {
            type Passed = $passed;

            #[inline(always)]
            fn pass(self) -> $passed {
                $pass(self)
            }

            #[inline(always)]
            fn receive(number: $passed) -> Option<Self> {
                Some($receive(number))
            }
        }
    )*};
}

numbers! {
    u32 as u32: |number| number, |number| number;
    u64 as u64: |number| number, |number| number;
    bool as u32: u32::from, |number| number != 0;
    Party as u32: |party| party as u32, Party::from_code;
    Scope as u32: |scope| scope as u32, Scope::from_code;
    Reason as u32: |reason| reason as u32, Reason::from_code;
    Weight as u64: Weight::to_bits, Weight::from_bits;
    Refused as u64: Refused::to_bits, Refused::from_bits;
    Precedence as u32: Precedence::to_bits, Precedence::from_bits;
}

/// The answer of a stage, and the number that it is returned as.
trait StageAnswer: Sized {
    /// The answer if an address was null.
    const NOTHING: u32;
    fn to_number(self) -> u32;
    fn from_number(number: u32) -> Self;
}

impl StageAnswer for Reason {
    const NOTHING: u32 = Self::TableFull as u32;

    #[inline(always)]
    fn to_number(self) -> u32 {
        self as u32
    }

    #[inline(always)]
    fn from_number(number: u32) -> Self {
        // SAFETY: every number that a stage returns is `to_number` of a reason, or `NOTHING`, which is one. Checking it would be two
        // branches at each call, which the verifier would follow.
        unsafe { core::mem::transmute::<u32, Self>(number) }
    }
}

/// Stands for a reason when the source needs an entry.
const NEEDS_ENTRY: u32 = u32::MAX;

impl StageAnswer for Option<Reason> {
    const NOTHING: u32 = Reason::NOTHING;

    #[inline(always)]
    fn to_number(self) -> u32 {
        self.map_or(NEEDS_ENTRY, |reason| reason as u32)
    }

    #[inline(always)]
    fn from_number(number: u32) -> Self {
        if number == NEEDS_ENTRY { None } else { Some(Reason::from_number(number)) }
    }
}

impl StageAnswer for u32 {
    const NOTHING: u32 = limit::NO_LEVEL;

    #[inline(always)]
    fn to_number(self) -> u32 {
        self
    }

    #[inline(always)]
    fn from_number(number: u32) -> Self {
        number
    }
}

impl StageAnswer for Precedence {
    const NOTHING: u32 = Self::NONE.to_bits();

    #[inline(always)]
    fn to_number(self) -> u32 {
        self.to_bits()
    }

    #[inline(always)]
    fn from_number(number: u32) -> Self {
        Self::from_bits(number)
    }
}

impl StageAnswer for bool {
    const NOTHING: u32 = 0;

    #[inline(always)]
    fn to_number(self) -> u32 {
        self as u32
    }

    #[inline(always)]
    fn from_number(number: u32) -> Self {
        number != 0
    }
}

impl StageAnswer for () {
    const NOTHING: u32 = 0;

    #[inline(always)]
    fn to_number(self) -> u32 {
        0
    }

    #[inline(always)]
    fn from_number(_: u32) {}
}

/// Implements a trait of stages for the kernel: each method calls a global function of its name, and that function calls the function behind
/// the arrow.
macro_rules! stages {
    ($trait:ident $({$($more:item)*})?: $(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty => $does:expr;)*) => {
        impl $trait for Maps { $($($more)*)? $(
            #[inline(always)]
            fn $name(&self, $($argument: $type),*) -> $answer {
                #[unsafe(no_mangle)]
                #[inline(never)]
                extern "C" fn $name($($argument: <$type as Argument>::Passed),*) -> u32 {
                    match ($(<$type as Argument>::receive($argument),)*) {
                        ($(Some($argument),)*) => StageAnswer::to_number($does(&Maps::new(), $($argument),*)),
                        _ => <$answer as StageAnswer>::NOTHING,
                    }
                }
                StageAnswer::from_number($name($(Argument::pass($argument)),*))
            }
        )*}
    };
}

stages! { Leaves:
    fn known_refusal(policy: &Policy, sender: &Sender, weight: Weight, now_q8: u64) -> Option<Reason> => limit::known_refusal;
    fn judge_entry(policy: &Policy, set: &LimitSet, request: &PacketCharge, bucket: *mut Bucket) -> Reason => limit::judge_entry;
    fn charge_entry(set: &LimitSet, request: &PacketCharge, bucket: *mut Bucket) -> Reason => limit::charge_entry;
    fn charge_soft(set: &LimitSet, request: &PacketCharge, bucket: *mut Bucket, index: u32) -> Reason => limit::charge_soft;
    fn ask_window(limit: &WindowLimit, state: *mut WindowState, ask: &WindowCharge) -> Reason => limit::ask_window;
    fn stock_host(policy: &Policy, len: u64, now_q8: u64, party: Party) -> bool => limit::stock_host;
    fn spend_host(policy: &Policy, len: u64, party: Party) -> () => limit::spend_host;
    fn crowded_level(policy: &Policy, hi: u64, lo: u64, hash: u64, now_q8: u64) -> u32 => limit::crowded_level;
    fn is_crowded_out_at(policy: &Policy, first_cell: u32, prefix: u32, hash: u64, now_q8: u64) -> bool => limit::is_crowded_out_at;
    fn charge_crowd(policy: &Policy, request: &PacketCharge, party: Party) -> Reason => limit::charge_crowd;
    fn tidy(hash: u64, now_q8: u64) -> () => limit::tidy;
    fn remember_proven(hash: u64, now_q8: u64) -> () => limit::remember_proven;
    fn spent_lately(policy: &Policy, request: &PacketCharge) -> Reason => limit::spent_lately;
    fn press(policy: &Policy, request: &mut PacketCharge, party: Party) -> bool => limit::press;
    fn take_precedence(policy: &Policy, request: &PacketCharge, party: Party) -> Precedence => limit::take_precedence;
    fn charge_reserve(policy: &Policy, request: &PacketCharge, precedence: Precedence) -> () => limit::charge_reserve;
    fn unless_known(policy: &Policy, service: u32, hash: u64, now_ns: u64, reason: Reason) -> Option<Reason> => limit::unless_known;
    fn learn(policy: &Policy, request: &PacketCharge) -> () => limit::learn;
    fn introduce(policy: &Policy, service: u32, hash: u64, now_q8: u64) -> () => limit::introduce;
    fn count_syn(policy: &Policy, request: &PacketCharge) -> bool => limit::count_syn;
    fn remember_shared(policy: &Policy, request: &PacketCharge) -> () => limit::remember_shared;
    fn forget_shared(policy: &Policy, request: &PacketCharge) -> () => limit::forget_shared;
    fn report(policy: &Policy, request: &PacketCharge, reason: Reason) -> () => limit::report;
    fn report_unasked(policy: &Policy, hi: u64, lo: u64, refused: Refused, now_q8: u64) -> () => limit::report_source;
}

stages! { Stages {
    #[inline(always)]
    fn room<'r>(&self, here: &'r mut PacketCharge) -> &'r mut PacketCharge {
        let Some(cpu) = self.cpu() else { return here };
        // SAFETY: the value belongs to this CPU, on which no program is preempted by another, and a frame has one request at a time.
        unsafe { &mut (*cpu).request }
    }
}:
    fn is_crowded_out(policy: &Policy, sender: &Sender, weight: Weight, now_q8: u64) -> bool => limit::is_crowded_out;
    fn open_entry(policy: &Policy, set: &LimitSet, request: &PacketCharge) -> Reason => limit::open_entry;
    fn judge_service(policy: &Policy, request: &mut PacketCharge) -> Reason => limit::judge_service;
    fn charge_service(policy: &Policy, request: &mut PacketCharge) -> Option<Reason> => limit::charge_service;
    fn open_service(policy: &Policy, request: &mut PacketCharge) -> Reason => limit::open_service;
    fn judge_user(policy: &Policy, request: &mut PacketCharge) -> Reason => limit::judge_user;
    fn charge_user(policy: &Policy, request: &mut PacketCharge) -> Reason => limit::charge_user;
    fn ask_windows(policy: &Policy, request: &PacketCharge, scope: Scope, charging: bool) -> Reason => limit::ask_windows;
}

/// Functions that read the packet again, one for each kind of link. The verifier knows the type `xdp_md`: its address is the kernel's.
macro_rules! by_link {
    ($(#[$doc:meta])* $ethernet:ident, $ip:ident: ($($argument:ident: $type:ty),*) -> $does:ident) => {
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $ethernet(link: Link, ctx: &XdpContext, $($argument: $type),*) -> u32 {
            match link {
                Link::Ethernet => {
                    #[unsafe(no_mangle)]
                    #[inline(never)]
                    extern "C" fn $ethernet(ctx: *mut xdp_md, $($argument: $type),*) -> u32 {
                        $does(Link::Ethernet, &XdpContext::new(ctx), $($argument),*)
                    }
                    $ethernet(ctx.ctx, $($argument),*)
                }
                Link::Ip => {
                    #[unsafe(no_mangle)]
                    #[inline(never)]
                    extern "C" fn $ip(ctx: *mut xdp_md, $($argument: $type),*) -> u32 {
                        $does(Link::Ip, &XdpContext::new(ctx), $($argument),*)
                    }
                    $ip(ctx.ctx, $($argument),*)
                }
            }
        }
    };
}

by_link! {
    /// The service of a packet whose port is shared, by its destination.
    service_at, service_at_ip: (table: u32, class: u32) -> find_service
}

#[inline(always)]
fn find_service(link: Link, ctx: &XdpContext, table: u32, class: u32) -> u32 {
    service::at_destination(&Maps::new(), &Frame::of_context(link, ctx), table, class)
}

by_link! {
    /// The reason of a frame that has no source and would pass with the reason `passes`.
    judge_link, judge_link_ip: (policy: *const Policy, passes: u32) -> judge_frame
}

#[inline(always)]
fn judge_frame(link: Link, ctx: &XdpContext, policy: *const Policy, passes: u32) -> u32 {
    let Some(policy) = <&Policy>::receive(policy) else { return Reason::NOTHING };
    let frame = Frame::of_context(link, ctx);
    link::judge(&Maps::new(), &frame, policy, Frame::interface(ctx), Reason::from_code(passes)) as u32
}

by_link! {
    /// Whether a frame was dropped in the express lane.
    drop_again, drop_again_ip: (cpu: *mut Cpu, now_ns: u64) -> drop_frame_again
}

#[inline(always)]
fn drop_frame_again(link: Link, ctx: &XdpContext, cpu: *mut Cpu, now_ns: u64) -> u32 {
    let Some(maps) = Maps::holding(cpu) else { return 0 };
    express::drop_again(&Frame::of_context(link, ctx), &maps, now_ns).is_some() as u32
}

by_link! {
    /// Notes down a frame that was dropped in the express lane, and its counter.
    note_refusal, note_refusal_ip: (cpu: *mut Cpu, now_ns: u64) -> note_frame
}

#[inline(always)]
fn note_frame(link: Link, ctx: &XdpContext, cpu: *mut Cpu, now_ns: u64) -> u32 {
    let Some(maps) = Maps::holding(cpu) else { return 0 };
    express::note_refusal(&Frame::of_context(link, ctx), &maps, maps.counted(), now_ns);
    0
}

/// What a segment can show about its sender.
#[inline(always)]
pub(crate) fn proof_of(ctx: &XdpContext, packet: &Packet, otherwise: Reason) -> Proof {
    let (network_at, transport_at) = (packet.network_at as u32, packet.transport_at as u32);
    let family = packet.source.family as u32;
    Proof::from_code(segment_proof(ctx.ctx, family, network_at, transport_at, otherwise as u32))
}

/// What the segment at two offsets can show. A function of its own, because arguments that are kept for a second call take stack that `prove` does not have.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn segment_proof(
    ctx: *mut xdp_md,
    family: u32,
    network_at: u32,
    transport_at: u32,
    otherwise: u32,
) -> u32 {
    let proof = socket_proof(ctx, family, network_at, transport_at);
    // A listener at any address is found for a packet that is forwarded too, and never gets it.
    let is_unproven = proof == Proof::Nothing as u32;
    if proof == NO_SOCKET || is_unproven && is_forwarded(ctx, family, network_at) != 0 {
        return Proof::elsewhere(Reason::from_code(otherwise)) as u32;
    }
    proof
}

/// Stands for a proof where there is no socket.
const NO_SOCKET: u32 = u32::MAX;

/// What the socket of the segment at two offsets says. A function of its own, which reads the segment again: what a lookup needs on the
/// stack does not fit beside what limits need.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn socket_proof(ctx: *mut xdp_md, family: u32, network_at: u32, transport_at: u32) -> u32 {
    let family = if family == Family::V4 as u32 { Family::V4 } else { Family::V6 };
    let (network_at, transport_at) = (network_at as usize & MAX_OFFSET, transport_at as usize & MAX_OFFSET);
    let ctx = XdpContext::new(ctx);
    // The offsets of the headers are known, so the kind of link does not matter.
    match Segment::at(&Frame::of_context(Link::Ethernet, &ctx), family, network_at, transport_at) {
        Some(segment) => sockets::proof(&ctx, &segment).map_or(NO_SOCKET, |proof| proof as u32),
        None => Proof::Nothing as u32,
    }
}

/// Whether the host forwards a packet to this destination.
#[inline(always)]
pub(crate) fn forwards(ctx: &XdpContext, packet: &Packet) -> bool {
    is_forwarded(ctx.ctx, packet.source.family as u32, packet.network_at as u32) != 0
}

/// Whether the host forwards the packet whose IP header is at an offset. A function of its own, because the question to the kernel takes 64 bytes of the stack.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn is_forwarded(ctx: *mut xdp_md, family: u32, network_at: u32) -> u32 {
    let family = if family == Family::V4 as u32 { Family::V4 } else { Family::V6 };
    let ctx = XdpContext::new(ctx);
    // The offset of the header is known, so the kind of link does not matter.
    match ends(&Frame::of_context(Link::Ethernet, &ctx), family, network_at as usize & MAX_OFFSET) {
        Some((source, destination)) => sockets::forwards(&ctx, source, destination) as u32,
        None => 0,
    }
}
