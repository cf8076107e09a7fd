//! Known clients in the packet path: learns who is served, and says who is known. `limit::clients` in the common crate has the reasoning.

use ratelimit_common::{
    abi::{
        Policy, Reason,
        destination::BY_DESTINATION,
        service::{Challenge, MAX_SERVICES, NO_CLIENTS, NO_SERVICE, PORT_SLOTS, Protocol, port_slot},
    },
    limit::{
        clients::{self, Client, WAYS},
        gcra, prefilter,
    },
};

use super::request::PacketCharge;
use crate::{
    budget,
    forget::{forget, masked},
    tables::{CpuBudget, LaneWord, Tables},
};

/// For how long nothing is learned after a total was spent, in nanoseconds.
pub(super) const SCARCE_NS: u64 = 600_000_000;

/// One in this many packets beyond the budget of lessons is learned from, and counts as so many.
const SAMPLED: u64 = 16;

/// The hash of a source as a client of a service: a client is known to each service by itself.
#[inline(always)]
pub(super) fn client_hash(policy: &Policy, service: u32, hash: u64) -> u64 {
    // The compiler knows that the index is inside, and kernel 6.1 does not.
    let index = masked::<{ MAX_SERVICES - 1 }>(service.wrapping_sub(1) as usize);
    let group = if service == NO_SERVICE { 0 } else { policy.services[index].clients_group };
    prefilter::group_hash(hash, group, policy.prefilter.secret)
}

/// Whether a source has to be looked up before a total refuses it: the filter has it, or it is its turn. `hash` is the hash of the source.
#[inline(always)]
pub fn is_to_be_found<T: Tables>(tables: &T, policy: &Policy, service: u32, hash: u64, now_ns: u64) -> bool {
    let hash = client_hash(policy, service, hash);
    is_in_filter(tables, hash) || clients::is_unfiltered(hash, now_ns)
}

#[inline(always)]
pub(super) fn is_in_filter<T: Tables>(tables: &T, hash: u64) -> bool {
    let bits = clients::filter_bits(hash);
    tables.client_filter(clients::filter_index(hash)).is_some_and(|word| tables.load(word) & bits == bits)
}

/// The reason of a total that has nothing left for others; `None` if the source may be a known client of the service. One that is found although the filter has
/// lost it is put back.
#[inline(always)]
pub fn unless_known<T: Tables>(
    tables: &T,
    policy: &Policy,
    service: u32,
    hash: u64,
    now_ns: u64,
    reason: Reason,
) -> Option<Reason> {
    let hash = client_hash(policy, service, hash);
    if is_in_filter(tables, hash) {
        return None;
    }
    if !clients::is_unfiltered(hash, now_ns) {
        return Some(reason);
    }
    let found = tables.clients(clients::set_index(hash)).and_then(|set| find(tables, set, hash));
    if found.is_some_and(|(_, client)| client.is_known()) {
        pass_filter(tables, hash);
        return None;
    }
    Some(reason)
}

#[inline(always)]
pub(super) fn pass_filter<T: Tables>(tables: &T, hash: u64) {
    if let Some(word) = tables.client_filter(clients::filter_index(hash)) {
        // Another CPU that writes at the same moment may undo this. Then the client is put back when it is its turn.
        tables.store(word, tables.load(word) | clients::filter_bits(hash));
    }
}

/// The way of a client in its set, and what is remembered of it.
#[inline(always)]
pub(super) fn find<T: Tables>(tables: &T, set: T::Clients, hash: u64) -> Option<(usize, Client)> {
    let tag = clients::tag(hash);
    let (mut found, mut word) = (WAYS as u64, 0);
    for way in 0..WAYS {
        let client = Client(tables.load(tables.client(set, way)));
        if client.is_named(tag) {
            // Forgotten, or the verifier would follow what comes next for each way.
            (found, word) = (forget(way as u64, hash), forget(client.0, hash));
        }
    }
    if word == 0 { None } else { Some((masked::<{ WAYS - 1 }>(found as usize), Client(word))) }
}

/// Remembers that a total was spent a moment ago.
#[inline(always)]
pub(super) fn note_scarcity<T: Tables>(tables: &T, now_ns: u64) {
    if let Some(until) = tables.lane_word(LaneWord::ScarceUntil) {
        tables.store(until, now_ns.wrapping_add(SCARCE_NS));
    }
}

/// Whether a total was spent on this CPU a moment ago.
#[inline(always)]
pub(super) fn is_scarce<T: Tables>(tables: &T, now_q8: u64) -> bool {
    tables
        .lane_word(LaneWord::ScarceUntil)
        .is_some_and(|until| (now_q8 >> gcra::TIME_FRAC_BITS) < tables.load(until))
}

/// A random number, of this CPU's generator.
#[inline(always)]
pub(super) fn random<T: Tables>(tables: &T, seed: u64) -> u64 {
    let Some(state) = tables.lane_word(LaneWord::Random) else { return seed };
    // An additive generator: the state never gets stuck, and what is made of it is mixed.
    let next = tables.load(state).wrapping_add(0x9e37_79b9_7f4a_7c15);
    tables.store(state, next);
    let mixed = (next ^ seed ^ next >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 29
}

/// Whether clients are remembered for a service: a total limits its packets, and the policy has nothing against it.
#[inline(always)]
pub(super) fn has_total(policy: &Policy, service: u32) -> bool {
    let of_host = policy.host_total_count != 0;
    match policy.service(service) {
        Some((_, service)) => (of_host | (service.total_count != 0)) & (service.clients_group != NO_CLIENTS),
        None => of_host,
    }
}

/// The service of datagrams to a port, whose total is for clients that show a connection to the same port; no service if several share the port by destination.
#[inline(always)]
pub(super) fn datagram_service(policy: &Policy, port: u16) -> u32 {
    let slot = masked::<{ PORT_SLOTS - 1 }>(port_slot(Protocol::Udp, port) as usize);
    let number = policy.ports[slot] as u32;
    if number & BY_DESTINATION == 0 { number } else { NO_SERVICE }
}

/// Whether a connection to a port is looked for: it makes a client known to the service of datagrams there.
#[inline(always)]
pub(super) fn asks_for_connection(policy: &Policy, port: u16) -> bool {
    policy.lenient != 0
        && policy
            .service(datagram_service(policy, port))
            .is_some_and(|(_, service)| service.challenge == Challenge::Dns as u16)
}

/// Learns from a packet that was served.
#[inline(always)]
pub fn learn<T: Tables>(tables: &T, policy: &Policy, request: &PacketCharge) {
    let now_q8 = request.now_q8;
    let scarce = is_scarce(tables, now_q8);
    let random = random(tables, now_q8);
    let packets = if budget::take(tables, policy, CpuBudget::Lessons, now_q8) {
        1
    } else if random >> 60 == 0 {
        const { assert!(SAMPLED == 1 << 4, "one in so many has these bits clear") };
        SAMPLED
    } else {
        return;
    };
    let hash = client_hash(policy, request.service as u32, request.hash);
    let Some(set) = tables.clients(clients::set_index(hash)) else { return };
    let step = clients::step(hash, now_q8);
    match find(tables, set, hash) {
        Some((way, client)) => {
            let next = Client(forget(client.meet(step, if scarce { 0 } else { packets }, random).0, hash));
            if next != client {
                if next.is_known() && !client.is_known() {
                    pass_filter(tables, hash);
                }
                // Losing this race loses one packet.
                tables.compare_exchange(tables.client(set, way), client.0, next.0);
            }
        }
        None if scarce => {}
        None => welcome(tables, set, Client::first(clients::tag(hash), step, packets, random), (hash, step)),
    }
}

/// Makes a source known to a service, because it has shown what cannot be forged. It has no claim until it has earned one.
#[inline(always)]
pub fn introduce<T: Tables>(tables: &T, policy: &Policy, service: u32, hash: u64, now_q8: u64) {
    let hash = client_hash(policy, service, hash);
    let Some(set) = tables.clients(clients::set_index(hash)) else { return };
    let step = clients::step(hash, now_q8);
    pass_filter(tables, hash);
    match find(tables, set, hash) {
        Some((way, client)) => {
            tables.compare_exchange(tables.client(set, way), client.0, client.known().0);
        }
        None => welcome(tables, set, Client::first(clients::tag(hash), step, 0, 0).known(), (hash, step)),
    }
}

/// Gives a new client the cheapest place of a set; none if that is a known client's and another candidate is there.
#[inline(always)]
fn welcome<T: Tables>(tables: &T, set: T::Clients, first: Client, (hash, step): (u64, u64)) {
    let (mut place, mut cheapest, mut candidates) = (0_u64, u64::MAX, 0_u64);
    for way in 0..WAYS {
        let worth = Client(tables.load(tables.client(set, way))).worth(step);
        candidates |= worth & clients::WORTH_OF_CANDIDATE;
        if worth < cheapest {
            // Forgotten, or the verifier would follow every order of the clients.
            (place, cheapest) = (forget(way as u64, hash), worth);
        }
        (cheapest, candidates) = (forget(cheapest, hash), forget(candidates, hash));
    }
    if cheapest < clients::WORTH_OF_KNOWN || candidates == 0 {
        // Another CPU may write the place at the same moment: one of the two is lost.
        tables.store(tables.client(set, masked::<{ WAYS - 1 }>(place as usize)), first.0);
    }
}
