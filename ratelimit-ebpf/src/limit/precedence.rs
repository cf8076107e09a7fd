//! The precedence of known clients, and of sources with an entry, while a total is spent.
//!
//! A packet first asks for the ordinary part of a total, as that of any other source. If that is spent, a known client within its claim or share, and a source with an entry,
//! may have a packet of the **reserve** that untracked sources cannot use. All of them together have seven eighths of the rate there, so one eighth is left for
//! newcomers: for 0.6 s after the ordinary part was spent known clients do not ask for it. Proven sources have the reserve without asking.

use ratelimit_common::{
    abi::{
        Event, Policy, Reason,
        service::{MAX_TOTALS, Party},
    },
    limit::{
        clients::{self, ReservePressure},
        gcra,
    },
};

use super::{
    clients::{
        SCARCE_NS, client_hash, find, is_in_filter, is_to_be_found, note_scarcity, pass_filter, random,
    },
    request::PacketCharge,
    total::{self, TotalView},
};
use crate::{forget::forget, tables::Tables};

/// What a packet that found the ordinary part of a total spent may have of the reserve. The numbers cross functions of the kernel program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precedence(u32);

impl Precedence {
    /// The packet is of no known client, and there is no room for it.
    pub const NONE: Self = Self(0);
    const KNOWN: u32 = 1;
    const ADMITTED: u32 = 2;

    /// The precedence as a number.
    #[inline(always)]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The precedence that [`Self::to_bits`] made a number of.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    pub(super) const fn is_known(self) -> bool {
        self.0 & Self::KNOWN != 0
    }

    /// Whether the packet may have a part of the reserve.
    #[inline(always)]
    pub(super) const fn is_admitted(self) -> bool {
        self.0 & Self::ADMITTED != 0
    }
}

/// The reason of a total whose ordinary part was spent a moment ago, if the packet may be of a known client; otherwise [`Reason::Conforming`].
#[inline(always)]
pub fn spent_lately<T: Tables>(tables: &T, policy: &Policy, request: &PacketCharge) -> Reason {
    let (service, now_ns) = (request.service as u32, request.now_q8 >> gcra::TIME_FRAC_BITS);
    if !is_to_be_found(tables, policy, service, request.hash, now_ns) {
        return Reason::Conforming;
    }
    let since_q8 = request.now_q8.wrapping_sub(gcra::time_q8(SCARCE_NS));
    if TotalView::of_host(tables, policy).is_some_and(|view| view.was_spent_since(tables, since_q8)) {
        return Reason::HostTotal;
    }
    if TotalView::of(tables, policy, service).is_some_and(|view| view.was_spent_since(tables, since_q8)) {
        return Reason::ServiceTotal;
    }
    Reason::Conforming
}

/// Notes in a request how hard the reserves of its totals press; false if the packet has no precedence anyway.
#[inline(always)]
pub fn press<T: Tables>(tables: &T, policy: &Policy, request: &mut PacketCharge, party: Party) -> bool {
    let now_ns = request.now_q8 >> gcra::TIME_FRAC_BITS;
    note_scarcity(tables, now_ns);
    if !party.has_state() && !is_to_be_found(tables, policy, request.service as u32, request.hash, now_ns) {
        return false;
    }
    request.pressure = ReservePressure::NONE;
    if let Some(view) = TotalView::of(tables, policy, request.service as u32) {
        press_one(tables, &view, request);
    }
    if let Some(view) = TotalView::of_host(tables, policy) {
        press_one(tables, &view, request);
    }
    true
}

#[inline(always)]
fn press_one<T: Tables>(tables: &T, view: &TotalView<'_, T>, request: &mut PacketCharge) {
    for index in 0..MAX_TOTALS {
        let Some(reserve) = view.reserve(tables, index, request.len as u64, request.now_q8) else { break };
        request.pressure = request.pressure.and(&reserve);
    }
}

/// The precedence of a packet under the pressure that [`press`] has noted, and charges the claim or the share of a known client.
#[inline(always)]
pub fn take_precedence<T: Tables>(
    tables: &T,
    policy: &Policy,
    request: &PacketCharge,
    party: Party,
) -> Precedence {
    let now_q8 = request.now_q8;
    let hash = client_hash(policy, request.service as u32, request.hash);
    let is_filtered = is_in_filter(tables, hash);
    if is_filtered || clients::is_unfiltered(hash, now_q8 >> gcra::TIME_FRAC_BITS) {
        let set = clients::set_index(hash);
        if let Some((way, client)) = tables.clients(set).and_then(|set| find(tables, set, hash))
            && client.is_known()
        {
            if !is_filtered {
                pass_filter(tables, hash);
            }
            let Some(claims) = tables.claimed(set) else { return Precedence::NONE };
            let word = tables.client(claims, way);
            let step = clients::step(hash, now_q8);
            let average = forget(client.average_at(step), now_q8);
            let age = forget(client.age(step), now_q8);
            let (before, random) = (tables.load(word), random(tables, now_q8));
            let times = (now_q8, price_q8(policy, request));
            let Some(after) = clients::claim(before, (average, age), request.pressure, times, random) else {
                tables.note(Event::KnownRefused);
                return Precedence(Precedence::KNOWN);
            };
            tables.compare_exchange(word, before, after);
            tables.note(Event::KnownAdmitted);
            return Precedence(Precedence::KNOWN | Precedence::ADMITTED);
        }
    }
    let admitted = party.has_state() && request.pressure.has_room_for_tracked();
    Precedence(if admitted { Precedence::ADMITTED } else { 0 })
}

/// The time in which the total that is charged first earns the packet, in 1/256 ns.
#[inline(always)]
fn price_q8(policy: &Policy, request: &PacketCharge) -> u64 {
    let total = match policy.service(request.service as u32) {
        Some((_, service)) if service.total_count != 0 => &service.totals[0],
        _ => &policy.host_totals[0],
    };
    forget(total::price(request.len as u64, &total.limit), request.now_q8)
}

/// Charges the reserves of a packet's totals for what it takes of them. They count as wanted from then on if the packet is of a known client.
#[inline(always)]
pub fn charge_reserve<T: Tables>(
    tables: &T,
    policy: &Policy,
    request: &PacketCharge,
    precedence: Precedence,
) {
    if let Some(view) = TotalView::of(tables, policy, request.service as u32) {
        charge_one(tables, &view, request, precedence);
    }
    if let Some(view) = TotalView::of_host(tables, policy) {
        charge_one(tables, &view, request, precedence);
    }
}

#[inline(always)]
fn charge_one<T: Tables>(
    tables: &T,
    view: &TotalView<'_, T>,
    request: &PacketCharge,
    precedence: Precedence,
) {
    if precedence.is_known() {
        view.want_reserve(tables, request.now_q8);
    }
    if precedence.is_admitted() {
        view.charge_reserve(tables, request.len as u64, request.now_q8);
    }
}
