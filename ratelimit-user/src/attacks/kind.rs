//! The kind of an attack: which packets or requests it is made of.

use std::collections::BTreeMap;

use ratelimit_common::abi::Reason;
use serde::{Deserialize, Serialize};

use super::{load::Volume, target::AttackTarget};

/// The kind of an attack, as far as it is known by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttackKind {
    /// One or two sources over their limits sent most of the refused packets.
    OneSource,
    /// Many sources over their limits, or over a total that they share.
    #[default]
    ManySources,
    /// Untracked sources, more than get an entry: most of their addresses are forged.
    Spoofed,
    /// SYNs over a limit or answered with cookies that nobody acknowledged, and TCP packets that belong to no connection.
    Syn,
    /// Fragments over a limit.
    Fragments,
    /// UDP answers that this host did not ask for, from ports of services whose answers are larger than their questions.
    Reflection,
    /// Packets whose headers contradict themselves or are cut off.
    Malformed,
    /// ARP, neighbour discovery and frames that are not IP.
    Link,
    /// Requests over their limits.
    Requests,
    /// More packets, bytes or new sources than usual, which no limit refuses.
    UnusualRate,
}

/// The senders of refused packets, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Senders {
    /// Sampled packets, or drop events.
    pub(super) samples: u64,
    /// Different sources among the samples, as far as they are told apart.
    pub(super) sources: usize,
    /// Packets that the samples stand for.
    pub(super) packets: u64,
    /// Of these packets, those of the two sources that sent most, as far as they were surely seen.
    pub(super) of_two: u64,
    /// Samples whose source was not known when they came.
    pub(super) first_seen: u64,
    /// Packets whose source port is one of a reflector.
    pub(super) reflected: u64,
    /// Packets whose source port is known.
    pub(super) with_origin: u64,
}

impl Senders {
    /// Whether most packets come from ports of reflectors, and from more than two sources: one server that answers too much is one source.
    fn are_reflectors(&self) -> bool {
        self.sources > 2 && self.reflected * 2 > self.with_origin
    }
}

/// Fewer samples than this are too few to conclude that sources are not seen twice.
const FEW: u64 = 200;

impl AttackKind {
    /// Returns the name of the kind in reports and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneSource => "one_source",
            Self::ManySources => "many_sources",
            Self::Spoofed => "spoofed",
            Self::Syn => "syn",
            Self::Fragments => "fragments",
            Self::Reflection => "reflection",
            Self::Malformed => "malformed",
            Self::Link => "link",
            Self::Requests => "requests",
            Self::UnusualRate => "unusual_rate",
        }
    }

    /// Returns the kind that most refused packets belong to, by their reason and, where the reason does not decide, by their senders.
    pub(super) fn of(target: &AttackTarget, reasons: &BTreeMap<String, Volume>, senders: Senders) -> Self {
        if matches!(target, AttackTarget::Api(_)) {
            return Self::Requests;
        }
        let packets = by_kind(reasons.iter().map(|(name, volume)| (name.as_str(), volume.packets)));
        let most = packets.into_iter().max_by_key(|(sum, _)| *sum).and_then(|(_, kind)| kind);
        match most {
            // Reflectors are untracked sources and answer in fragments, so their ports say more than the reason of the refusal.
            None | Some(Self::Spoofed | Self::Fragments) if senders.are_reflectors() => Self::Reflection,
            Some(kind) => kind,
            None => by_senders(senders),
        }
    }
}

impl AttackKind {
    /// Whether two kinds may be one attack: a flood from many sources and one from forged sources look alike at times, and an unusual rate becomes another
    /// kind once a limit refuses it.
    pub(super) fn is_like(self, other: Self) -> bool {
        let is_many = |kind| matches!(kind, Self::ManySources | Self::Spoofed);
        let is_open = self == Self::UnusualRate || other == Self::UnusualRate;
        self == other || is_open || is_many(self) && is_many(other)
    }

    /// Whether the packets of one look are clearly of another kind than an attack of this kind: two thirds of them say so.
    pub(super) fn is_followed_by_another(
        self,
        refused: &BTreeMap<&'static str, Volume>,
        senders: Senders,
    ) -> bool {
        if matches!(self, Self::Requests | Self::UnusualRate) {
            return false;
        }
        let packets = by_kind(refused.iter().map(|(name, volume)| (*name, volume.packets)));
        let whole: u64 = packets.iter().map(|(sum, _)| sum).sum();
        let is_most = |part: u64, whole: u64| part * 3 > whole * 2;
        let clear = packets.iter().find(|(sum, _)| is_most(*sum, whole)).and_then(|(_, kind)| *kind);
        let is_open = |kind: &Option<Self>| matches!(kind, None | Some(Self::Spoofed));
        let open: u64 = packets.iter().filter(|(_, kind)| is_open(kind)).map(|(sum, _)| sum).sum();
        let has_samples = senders.samples >= FEW;
        if self == Self::Reflection && !has_samples {
            return false;
        }
        let is_reflectable = clear == Some(Self::Fragments) || is_most(open, whole);
        if is_reflectable && has_samples && senders.sources > 2 && senders.reflected * 3 > senders.with_origin
        {
            // Between a third and two thirds from ports of reflectors nothing is clear.
            return is_most(senders.reflected, senders.with_origin) && self != Self::Reflection;
        }
        let other = match clear {
            Some(kind) => kind,
            None if !is_most(open, whole) || !has_samples => return false,
            None if is_most(senders.of_two, senders.packets) => Self::OneSource,
            None if senders.of_two * 3 < senders.packets => Self::ManySources,
            None => return false,
        };
        !other.is_like(self)
    }
}

/// Sums up packets by the kind that their reasons decide, if they do.
fn by_kind<'r>(reasons: impl Iterator<Item = (&'r str, u64)>) -> Vec<(u64, Option<AttackKind>)> {
    let mut packets: Vec<(u64, Option<AttackKind>)> = Vec::new();
    for (name, count) in reasons {
        let kind =
            Reason::ALL.iter().find(|reason| reason.name() == name).and_then(|reason| told_by(*reason));
        match packets.iter_mut().find(|(_, other)| *other == kind) {
            Some((sum, _)) => *sum += count,
            None => packets.push((count, kind)),
        }
    }
    packets
}

/// Returns the kind of attack that a reason alone decides, if it does.
fn told_by(reason: Reason) -> Option<AttackKind> {
    match reason {
        Reason::LimitSyns | Reason::CookieSent | Reason::CookieInvalid => Some(AttackKind::Syn),
        Reason::LimitFragments => Some(AttackKind::Fragments),
        Reason::NewSourceBudget | Reason::TableFull => Some(AttackKind::Spoofed),
        Reason::LinkCap => Some(AttackKind::Link),
        Reason::Truncated
        | Reason::VlanDepth
        | Reason::BadIpHeader
        | Reason::MappedSource
        | Reason::ExtensionChain => Some(AttackKind::Malformed),
        _ => None,
    }
}

/// Returns the kind of an attack whose reasons do not decide it, such as limits of packets and bytes: the senders decide.
fn by_senders(senders: Senders) -> AttackKind {
    let Senders { samples, first_seen, packets, of_two, .. } = senders;
    if of_two * 2 > packets {
        AttackKind::OneSource
    } else if samples >= FEW && first_seen * 10 >= samples * 9 {
        AttackKind::Spoofed
    } else {
        AttackKind::ManySources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Senders that sent the same number of samples each.
    fn alike(samples: u64, sources: usize) -> Senders {
        let first_seen = sources as u64;
        let of_two = (samples * 2 / first_seen.max(1)).min(samples);
        Senders { samples, sources, first_seen, packets: samples, of_two, ..Senders::default() }
    }

    #[test]
    fn most_packets_decide_and_then_who_sent_them() {
        let of = |reasons: &[(Reason, u64)], samples, sources| {
            let volume = |(reason, packets): &(Reason, u64)| {
                (reason.name().to_owned(), Volume { packets: *packets, bytes: 0 })
            };
            let senders = alike(samples, sources);
            AttackKind::of(&AttackTarget::Host, &reasons.iter().map(volume).collect(), senders)
        };
        assert_eq!(of(&[(Reason::LimitPackets, 9)], 20, 1), AttackKind::OneSource);
        assert_eq!(of(&[(Reason::LimitPackets, 9)], 0, 0), AttackKind::ManySources);
        assert_eq!(of(&[(Reason::ServiceTotal, 9)], 400, 40), AttackKind::ManySources);
        assert_eq!(of(&[(Reason::ServiceTotal, 9)], 400, 3), AttackKind::OneSource, "two thirds are of two");
        assert_eq!(of(&[(Reason::ServiceTotal, 9)], 400, 4), AttackKind::ManySources, "half is not most");
        assert_eq!(of(&[(Reason::ServiceTotal, 9)], 400, 390), AttackKind::Spoofed);
        assert_eq!(
            of(&[(Reason::LimitPackets, 9), (Reason::NewSourceBudget, 10)], 20, 1),
            AttackKind::Spoofed
        );
        assert_eq!(
            of(&[(Reason::CookieSent, 5), (Reason::LimitSyns, 5), (Reason::LimitBytes, 9)], 20, 1),
            AttackKind::Syn
        );
        assert_eq!(of(&[(Reason::LimitFragments, 9)], 20, 1), AttackKind::Fragments);
        assert_eq!(
            of(&[(Reason::Truncated, 5), (Reason::BadIpHeader, 5), (Reason::HostTotal, 9)], 0, 0),
            AttackKind::Malformed
        );
        let reflected = |reason: Reason, sources, reflected| {
            let senders = Senders { first_seen: 10, reflected, with_origin: 10, ..alike(10, sources) };
            let reasons = [(reason.name().to_owned(), Volume { packets: 9, bytes: 0 })].into();
            AttackKind::of(&AttackTarget::Host, &reasons, senders)
        };
        assert_eq!(reflected(Reason::LimitPackets, 10, 6), AttackKind::Reflection);
        assert_eq!(reflected(Reason::NewSourceBudget, 10, 6), AttackKind::Reflection);
        assert_eq!(reflected(Reason::LimitFragments, 10, 6), AttackKind::Reflection);
        assert_eq!(reflected(Reason::LimitSyns, 10, 6), AttackKind::Syn, "no reflector of UDP sends SYNs");
        assert_eq!(reflected(Reason::LimitPackets, 10, 5), AttackKind::ManySources);
        assert_eq!(
            reflected(Reason::LimitPackets, 1, 10),
            AttackKind::OneSource,
            "a server that answers much"
        );
        let api = AttackTarget::Api("search".into());
        assert_eq!(AttackKind::of(&api, &BTreeMap::new(), Senders::default()), AttackKind::Requests);
    }
}
