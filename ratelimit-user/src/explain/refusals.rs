//! Finds out what refuses packets of a source now. The packet path decides about a packet of every kind that is counted, and again with the cause of each
//! refusal lifted, until the packet passes.

use std::rc::Rc;

use ratelimit_common::{
    abi::{
        LimitSet, Meter, Policy, Reason, Share, Verdict,
        counter::Fate,
        list::FOREVER_NS,
        service::{HOST_TOTAL, NO_SERVICE},
        user::NO_USER,
        window::{MAX_WINDOWS, SET_WINDOWS},
    },
    limit::gcra::SMALLEST_FRAME,
};
use ratelimit_ebpf::{
    packet::{Address, Packet, Transport},
    verdict::within_host,
};

use super::{
    ExplainContext,
    record::ReadRecord,
    remembered::Remembered,
    report::ExplainedRefusal,
    scratch::{Lifted, ScratchTables, ScratchWord},
    source_state::ms,
};
use crate::policy::Service;

/// The longest time in milliseconds that a limit refuses a packet: half a year.
const LONGEST_MS: u64 = 1 << 34;

/// Kinds of packets, named by a meter that counts them.
const KINDS: [Meter; 3] = [Meter::Packets, Meter::Syns, Meter::Fragments];

/// The verdict on packets of a source, and everything that refuses them.
pub(super) struct Refusals {
    /// The verdict on the next packet, of the smallest size and for no service.
    pub(super) verdict: &'static str,
    /// The reason of the verdict, by its name in `stats`.
    pub(super) reason: String,
    /// Everything that refuses packets now, in the order in which the packet path checks it.
    pub(super) all: Vec<ExplainedRefusal>,
}

impl Refusals {
    /// Finds the refusals of packets for no service, and of packets for each of these services.
    pub(super) fn of<'p, R: Remembered>(
        record: &ReadRecord<'_, R>,
        setting: &ExplainContext<'_>,
        source: Address,
        services: impl Iterator<Item = &'p Service>,
    ) -> Self {
        let mut asking =
            SourceInquiry { record, source, service: None, number: NO_SERVICE, refusals: Vec::new() };
        let passes = asking.ask(Meter::Packets, Rc::default());
        let (verdict, reason) = match asking.refusals.first() {
            None => (Verdict::Pass.name(), passes.reason.name().to_owned()),
            Some(first) if first.waived => ("would_drop", first.reason.clone()),
            Some(first) => (Verdict::Drop.name(), first.reason.clone()),
        };
        let sets = [&record.policy.source.set, &record.user_limits];
        asking.spare(&sets);
        asking.ask_cpus(HOST_TOTAL, &passes.lifted);
        let of_all_kinds = asking.ask_further(&sets, Rc::clone(&passes.lifted));
        for service in services {
            let Some(index) = setting.names.services.of(service.name()) else { continue };
            asking.service = Some(service.name());
            asking.number = index as u32 + 1;
            // Refusals of packets for every service are recorded already.
            let of_service = asking.ask(Meter::Packets, Rc::clone(&passes.lifted));
            asking.ask_cpus(index as u32, &of_service.lifted);
            let told = Rc::new(of_service.lifted.and(&of_all_kinds));
            asking.ask_further(&[&record.policy.services[index].per_source], told);
        }
        Self { verdict, reason, all: asking.refusals }
    }

    /// How long packets for a service, or for none, are refused for a reason. `plain`: only refusals of packets of every kind.
    pub(super) fn for_ms(&self, reason: &str, service: Option<&str>, plain: bool) -> Option<u64> {
        let is_it = |one: &&ExplainedRefusal| {
            !one.some_cpus
                && one.reason == reason
                && one.service.as_deref() == service
                && (!plain || one.applies_to == Meter::Packets.name())
        };
        self.all.iter().find(is_it)?.for_ms
    }
}

/// How long one limit refuses packets of a source: packets for the service of a number, of the kind that the meter counts. The packet path decides
/// with everything lifted but the words of this limit. `None` if a packet passes now, or none ever does.
pub(super) fn alone_ms<R: Remembered>(
    record: &ReadRecord<'_, R>,
    source: Address,
    number: u32,
    meter: Meter,
    words: Vec<ScratchWord>,
) -> Option<u64> {
    refused_alone(record, source, number, meter, words)?.1
}

/// How long one of the prefixes around a source refuses its packets, measured like [`alone_ms`]. The budget for new sources counts as one of
/// the words of a prefix, because a prefix needs an entry too; a refusal for lack of an entry of the source itself is not the prefix's.
pub(super) fn prefix_alone_ms<R: Remembered>(
    record: &ReadRecord<'_, R>,
    source: Address,
    meter: Meter,
    words: Vec<ScratchWord>,
) -> Option<u64> {
    let (reason, for_ms) = refused_alone(record, source, NO_SERVICE, meter, words)?;
    if reason == Reason::LimitPrefix { for_ms } else { None }
}

/// Why a packet is refused with everything lifted but some words, and for how long, if the refusal ends.
fn refused_alone<R: Remembered>(
    record: &ReadRecord<'_, R>,
    source: Address,
    number: u32,
    meter: Meter,
    words: Vec<ScratchWord>,
) -> Option<(Reason, Option<u64>)> {
    let asking = SourceInquiry { record, source, service: None, number, refusals: Vec::new() };
    let packet = asking.packet(meter);
    let scratch = ScratchTables::new(record, Rc::new(Lifted::all_but(words)));
    let reason = scratch.judge(packet, SMALLEST_FRAME);
    (reason.verdict() == Verdict::Drop).then(|| (reason, asking.lasts_ms(&scratch, packet, reason)))
}

/// An inquiry about packets of one source, and the refusals that it has found.
struct SourceInquiry<'a, R: Remembered> {
    record: &'a ReadRecord<'a, R>,
    source: Address,
    /// The service that packets are for.
    service: Option<&'a str>,
    /// The number of that service in the kernel: one more than its index.
    number: u32,
    refusals: Vec<ExplainedRefusal>,
}

/// How a packet passes: the reason, and what had to be lifted.
struct Passes {
    reason: Reason,
    lifted: Rc<Lifted>,
}

impl<R: Remembered> SourceInquiry<'_, R> {
    /// Asks about the kinds of packets that one of these sets has limits for.
    fn ask_further(&mut self, sets: &[&LimitSet], mut lifted: Rc<Lifted>) -> Rc<Lifted> {
        let policy = self.record.policy;
        for kind in KINDS.into_iter().skip(1) {
            if sets.iter().any(|set| counts(policy, set, kind)) {
                lifted = self.ask(kind, lifted).lifted;
            }
        }
        lifted
    }

    /// Records SYNs and fragments that pass although a plain packet is refused. Limits that refuse the plain packet are lifted before each kind is asked about.
    fn spare(&mut self, sets: &[&LimitSet]) {
        let policy = self.record.policy;
        for kind in KINDS.into_iter().skip(1).filter(|kind| sets.iter().any(|set| counts(policy, set, *kind)))
        {
            let mut apart = Self { refusals: Vec::new(), ..*self };
            apart.ask(kind, Rc::default());
            let refuses = |reason: &str| apart.refusals.iter().any(|one| one.reason == reason);
            for one in self.refusals.iter_mut().filter(|one| !refuses(&one.reason)) {
                one.spares.push(kind.name().to_owned());
            }
        }
    }

    /// Asks about a packet on each CPU, if it passes on the CPU that holds most of a total: other CPUs may hold nothing.
    fn ask_cpus(&mut self, total: u32, lifted: &Rc<Lifted>) {
        let packet = self.packet(Meter::Packets);
        // A CPU that holds nothing yet may not exist.
        let shares = self.record.shares(total).into_iter().filter(|share| *share != Share::EMPTY);
        let refused = shares.filter_map(|share| {
            let scratch = ScratchTables::new(self.record, Rc::clone(lifted)).with_share(total, &share);
            let reason = self.end(&scratch, packet).1;
            let is_of_total = match total {
                HOST_TOTAL => reason == Reason::HostTotal,
                _ => reason == Reason::ServiceTotal,
            };
            is_of_total.then_some((scratch, reason))
        });
        let longest = refused
            .map(|(scratch, reason)| (reason, self.lasts_ms(&scratch, packet, reason)))
            .max_by_key(|(_, for_ms)| for_ms.unwrap_or(u64::MAX));
        let Some((reason, for_ms)) = longest else { return };
        self.refusals.push(ExplainedRefusal {
            reason: reason.name().to_owned(),
            applies_to: Meter::Packets.name().to_owned(),
            spares: Vec::new(),
            some_cpus: true,
            service: self.service.map(str::to_owned),
            for_ms,
            waived: self.record.policy.fate(self.number, reason) == Fate::Waived,
        });
    }

    /// Asks about a kind of packets with more and more lifted, until a packet passes or nothing more can be lifted.
    fn ask(&mut self, kind: Meter, mut lifted: Rc<Lifted>) -> Passes {
        let packet = self.packet(kind);
        let mut seen: Vec<Reason> = Vec::new();
        loop {
            let scratch = ScratchTables::new(self.record, Rc::clone(&lifted));
            let (reason, ends) = self.end(&scratch, packet);
            if reason.verdict() != Verdict::Drop {
                return Passes { reason, lifted };
            }
            // Behind a refusal by the negative cache is a limit that refuses for the same reason.
            for reason in [ends, reason] {
                if seen.contains(&reason) {
                    continue;
                }
                seen.push(reason);
                let waived = self.record.policy.fate(self.number, reason) == Fate::Waived;
                self.refusals.push(ExplainedRefusal {
                    reason: reason.name().to_owned(),
                    applies_to: kind.name().to_owned(),
                    spares: Vec::new(),
                    some_cpus: false,
                    service: self.service.map(str::to_owned),
                    for_ms: self.lasts_ms(&scratch, packet, reason),
                    waived,
                });
            }
            match scratch.lift(reason) {
                Some(more) => lifted = more,
                None => return Passes { reason, lifted },
            }
        }
    }

    /// The reason of the limiter, and the reason that the packet ends with: a service on trial may let it pass, and then the host's total may refuse it.
    fn end(&self, scratch: &ScratchTables<'_, R>, packet: Packet) -> (Reason, Reason) {
        let policy = self.record.policy;
        let reason = scratch.judge(packet, SMALLEST_FRAME);
        let fate = policy.fate(self.number, reason);
        if reason.verdict() != Verdict::Drop {
            return (reason, reason);
        }
        (reason, within_host(scratch, policy, reason, fate, SMALLEST_FRAME).0)
    }

    /// A packet of the smallest size.
    fn packet(&self, kind: Meter) -> Packet {
        Packet {
            source: self.source,
            transport: match kind {
                Meter::Syns => Transport::TCP_SYN,
                Meter::Fragments => Transport::FRAGMENT,
                Meter::Packets | Meter::Bytes => Transport::OTHER,
            },
            port: 0,
            protocol: 0,
            network_at: 0,
            transport_at: 0,
            transport_len: 0,
            fragment: kind == Meter::Fragments,
            service: self.number as u16,
            user: NO_USER,
        }
    }

    /// Milliseconds until a packet that is sent again is no longer refused for a reason; `None` if that never ends.
    fn lasts_ms(&self, refused: &ScratchTables<'_, R>, packet: Packet, reason: Reason) -> Option<u64> {
        if let (Reason::Blocked, Some(entry)) = (reason, self.record.listed) {
            let left_ns = entry.blocked_until_ns.saturating_sub(self.record.now_ns);
            return (entry.blocked_until_ns != FOREVER_NS).then(|| ms(left_ns));
        }
        let lasts = |ms: u64| {
            let (refused, ends) = self.end(&refused.after_ms(ms), packet);
            [refused, ends].contains(&reason)
        };
        let (mut refused_at, mut passes_at) = (0, 1);
        while lasts(passes_at) {
            (refused_at, passes_at) = (passes_at, passes_at * 2);
            if passes_at > LONGEST_MS {
                return None;
            }
        }
        while passes_at - refused_at > 1 {
            let middle = refused_at.midpoint(passes_at);
            if lasts(middle) {
                refused_at = middle;
            } else {
                passes_at = middle;
            }
        }
        Some(passes_at)
    }
}

/// Whether a set has a limit of a meter.
fn counts(policy: &Policy, set: &LimitSet, meter: Meter) -> bool {
    let of_window = |number: &u8| {
        let index = usize::from(number.saturating_sub(1)) % MAX_WINDOWS;
        *number != 0 && u32::from(policy.windows[index].meter) == meter as u32
    };
    set.limits.iter().any(|limit| limit.meter == meter as u32)
        || set.windows.iter().take(SET_WINDOWS).any(of_window)
}
