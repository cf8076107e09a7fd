//! What an attack is made of.

use std::collections::BTreeMap;

use ratelimit_common::abi::Reason;
use serde::{Deserialize, Serialize};

use super::{load::Volume, target::AttackTarget};

/// What an attack is made of, as far as that is known by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttackKind {
    /// One or two sources over their limits.
    OneSource,
    /// Sources over their limits, or over what they may have together.
    #[default]
    ManySources,
    /// Sources without state, more than get some: most of them forged.
    Spoofed,
    /// SYNs over a limit or answered with cookies that nobody acknowledged, and TCP that belongs to no connection.
    Syn,
    /// Fragments over a limit.
    Fragments,
    /// Answers that nobody asked for, from ports of services that answer with more than they are sent.
    Reflection,
    /// Packets whose headers contradict themselves or are cut off.
    Malformed,
    /// ARP, neighbour discovery and frames that are not IP.
    Link,
    /// Requests over their limits.
    Requests,
}

/// What is known of who sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Senders {
    /// Drop events.
    pub(super) samples: u64,
    /// Different sources among them.
    pub(super) sources: usize,
    /// Drop events whose source port is one that reflections come from.
    pub(super) reflected: u64,
}

/// Drop events that are too few to say that sources are never seen twice.
const FEW: u64 = 200;

impl AttackKind {
    /// As in reports and metrics.
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
        }
    }

    /// From what was refused so far and from who was seen: the kind of most packets.
    pub(super) fn of(target: &AttackTarget, reasons: &BTreeMap<String, Volume>, senders: Senders) -> Self {
        if matches!(target, AttackTarget::Api(_)) {
            return Self::Requests;
        }
        let mut packets: Vec<(u64, Option<Self>)> = Vec::new();
        for (name, volume) in reasons {
            let kind =
                Reason::ALL.iter().find(|reason| reason.name() == name).and_then(|reason| told_by(*reason));
            match packets.iter_mut().find(|(_, other)| *other == kind) {
                Some((sum, _)) => *sum += volume.packets,
                None => packets.push((volume.packets, kind)),
            }
        }
        let most = packets.into_iter().max_by_key(|(sum, _)| *sum).and_then(|(_, kind)| kind);
        most.unwrap_or_else(|| by_senders(senders))
    }
}

/// The kind that a reason alone tells.
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

/// Over limits of packets and bytes: who sends decides. A source is told of ten times a second at most, so counts of drop events say how many
/// sources there are, not how much each sends.
fn by_senders(senders: Senders) -> AttackKind {
    let Senders { samples, sources, reflected } = senders;
    if reflected * 2 > samples {
        AttackKind::Reflection
    } else if sources <= 2 && samples > 0 {
        AttackKind::OneSource
    } else if samples >= FEW && sources as u64 * 10 >= samples * 9 {
        AttackKind::Spoofed
    } else {
        AttackKind::ManySources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_packets_decide_and_then_who_sent_them() {
        let of = |reasons: &[(Reason, u64)], samples, sources| {
            let volume = |(reason, packets): &(Reason, u64)| {
                (reason.name().to_owned(), Volume { packets: *packets, bytes: 0 })
            };
            let senders = Senders { samples, sources, reflected: 0 };
            AttackKind::of(&AttackTarget::Host, &reasons.iter().map(volume).collect(), senders)
        };
        assert_eq!(of(&[(Reason::LimitPackets, 9)], 20, 1), AttackKind::OneSource);
        assert_eq!(of(&[(Reason::LimitPackets, 9)], 0, 0), AttackKind::ManySources);
        assert_eq!(of(&[(Reason::ServiceTotal, 9)], 400, 40), AttackKind::ManySources);
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
        let reflected = Senders { samples: 10, sources: 10, reflected: 6 };
        assert_eq!(by_senders(reflected), AttackKind::Reflection);
        let api = AttackTarget::Api("search".into());
        assert_eq!(AttackKind::of(&api, &BTreeMap::new(), Senders::default()), AttackKind::Requests);
    }
}
