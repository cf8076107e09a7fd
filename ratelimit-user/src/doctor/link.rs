//! Checks of one interface: its frames, its structure, how packets are spread over queues, and the program on it.

use super::{
    finding::HostFinding,
    native,
    readings::{HostReadings, LinkReadings, Occupant, Wishes},
};
use crate::dataplane::features::RX_VLAN;

/// Frames that a receive queue should have room for: a CPU that is busy elsewhere for a tenth of a millisecond then loses none at ten million a second.
const RING_WANTED: u32 = 1_024;
/// The dispatcher program that libxdp and bpfman attach in front of others.
const DISPATCHER: &str = "xdp_dispatcher";

pub(super) fn examine(link: &LinkReadings, host: &HostReadings, wishes: &Wishes) -> Vec<HostFinding> {
    let mut findings = vec![framing(link), structure(link), occupant(link)];
    findings.extend(native::examine(link, host));
    findings.push(tags(link, wishes));
    findings.extend(far_end(link, wishes));
    findings.extend([queues(link, host), ring(link)]);
    findings.extend(spread(link));
    findings.into_iter().map(|finding| finding.about(&link.name)).collect()
}

fn framing(link: &LinkReadings) -> HostFinding {
    match &link.framing {
        Ok("ip") => HostFinding::ok(
            "link_type",
            "frames are IP packets; the kernel program sends no answers on such a link",
        ),
        Ok(name) => HostFinding::ok("link_type", name),
        Err(why) => HostFinding::fail("link_type", why, "guard the interface that its packets come in by"),
    }
}

fn structure(link: &LinkReadings) -> HostFinding {
    match (link.kind.as_deref(), &link.vlan_of, &link.port_of) {
        (Some("vlan"), Some(below), _) => HostFinding::warn(
            "structure",
            format!(
                "a VLAN of {below}: there is no native mode on VLANs, and the VLANs beside it are not guarded"
            ),
            format!("guard {below}; tags are read"),
        ),
        (Some("bridge"), ..) => HostFinding::warn(
            "structure",
            "a bridge: there is no native mode on bridges, and what it hands on between ports is not seen",
            "guard its ports",
        ),
        (_, _, Some((above, kind))) if kind == "bond" => HostFinding::warn(
            "structure",
            format!(
                "a port of the bond {above}: the kernel refuses a program on it while {above} has one, and the other ports are not guarded"
            ),
            format!("guard {above}"),
        ),
        (_, _, Some((above, kind))) => HostFinding::ok(
            "structure",
            format!("a port of {above} ({kind}); frames are judged before they are handed on"),
        ),
        (Some("bond"), ..) => HostFinding::ok(
            "structure",
            "a bond; native mode needs ports whose drivers have it, and not the modes balance-tlb and balance-alb",
        ),
        (Some(kind), ..) => HostFinding::ok("structure", kind),
        (None, ..) => HostFinding::ok(
            "structure",
            link.driver
                .as_deref()
                .map_or_else(|| "a device".to_owned(), |driver| format!("a device, driver {driver}")),
        ),
    }
}

fn occupant(link: &LinkReadings) -> HostFinding {
    let name = &link.name;
    match &link.occupant {
        Occupant::Nobody => HostFinding::ok("program", "no XDP program is on it"),
        Occupant::Ours("generic") => HostFinding::warn(
            "program",
            "ratelimit, in generic mode: about a tenth of the speed",
            format!(
                "see native_mode of {name}, then ratelimit detach --iface {name} and start the daemon again"
            ),
        ),
        Occupant::Ours(mode) => HostFinding::ok("program", format!("ratelimit, in {mode} mode")),
        Occupant::Unnamed(id, why) => {
            HostFinding::unknown("program", format!("program {id} is on it; {why}"))
        }
        Occupant::Foreign(id, program) if program.starts_with(DISPATCHER) => HostFinding::fail(
            "program",
            format!(
                "a dispatcher ({program}, id {id}) is on it: ratelimit does not run behind one, and takes no other program's place"
            ),
            format!("xdp-loader unload {name} --all, or bpfman unload"),
        ),
        Occupant::Foreign(id, program) => HostFinding::fail(
            "program",
            format!("the XDP program {program} (id {id}) of somebody else is on it, and is left alone"),
            format!("ip link set dev {name} xdp off, or choose another interface"),
        ),
    }
}

fn tags(link: &LinkReadings, wishes: &Wishes) -> HostFinding {
    let features = match &link.features {
        Ok(features) => features,
        Err(why) => return HostFinding::unknown("vlan_offload", why),
    };
    match (features.contains(RX_VLAN), link.has_vlans) {
        (false, _) => HostFinding::ok("vlan_offload", "VLAN tags stay in frames"),
        (true, false) => {
            HostFinding::ok("vlan_offload", "VLAN tags are kept apart; the interface has no VLANs")
        }
        (true, true) if wishes.answers => HostFinding::warn(
            "vlan_offload",
            "VLAN tags are kept apart from frames: no packet is answered here, so SYN cookies and on_limit = \"reject\" do nothing",
            format!("ethtool -K {} rxvlan off", link.name),
        ),
        (true, true) => HostFinding::ok(
            "vlan_offload",
            "VLAN tags are kept apart from frames; it matters to policies that answer (SYN cookies, reject)",
        ),
    }
}

/// Checks whether replies get through a pair of interfaces, if the policy has replies. In generic mode they do.
fn far_end(link: &LinkReadings, wishes: &Wishes) -> Option<HostFinding> {
    let takes_answers = link.takes_answers.as_ref().filter(|_| wishes.answers)?;
    Some(match takes_answers {
        _ if link.occupant == Occupant::Ours("generic") => {
            HostFinding::ok("far_end", "in generic mode every other end takes answers")
        }
        Ok(true) => HostFinding::ok("far_end", "the other end runs an XDP program, and takes answers"),
        Ok(false) => HostFinding::warn(
            "far_end",
            "the other end of this veth runs no XDP program in native mode, and the kernel hands answers to no other: no packet is answered here, so \
             SYN cookies and on_limit = \"reject\" do nothing",
            "attach an XDP program that passes every packet to the other end, in native mode",
        ),
        Err(why) => HostFinding::unknown("far_end", why),
    })
}

fn queues(link: &LinkReadings, host: &HostReadings) -> HostFinding {
    let queues = match &link.queues {
        Ok(queues) => queues,
        Err(why) => return HostFinding::unknown("queues", why),
    };
    let useful = queues.most.min(host.cpus);
    if queues.now < useful {
        return HostFinding::warn(
            "queues",
            format!(
                "receive queues: {}, CPUs: {}: a flood keeps as many CPUs busy as there are queues, and the others idle",
                queues.now, host.cpus
            ),
            format!("ethtool -L {name} combined {useful} (or rx {useful})", name = link.name),
        );
    }
    let limit = if queues.now < host.cpus { "; the device has no more" } else { "" };
    HostFinding::ok("queues", format!("receive queues: {}, CPUs: {}{limit}", queues.now, host.cpus))
}

/// Checks whether flows are spread evenly over all queues; `None` for links without a table, or with one queue.
fn spread(link: &LinkReadings) -> Option<HostFinding> {
    let (Ok(table), Ok(queues)) = (&link.spread, &link.queues) else { return None };
    if table.is_empty() || queues.now < 2 {
        return None;
    }
    let last = table.iter().copied().max().unwrap_or(0).max(queues.now - 1);
    let entries = |queue: u32| table.iter().filter(|entry| **entry == queue).count();
    let (least, most) = (0..=last)
        .map(entries)
        .fold((usize::MAX, 0), |(least, most), count| (least.min(count), most.max(count)));
    if most > 2 * least.max(1) || least == 0 {
        return Some(HostFinding::warn(
            "spread",
            format!(
                "of {} entries of the RSS table one receive queue has {most} and another {least}: a flood keeps some CPUs busy while others idle",
                table.len()
            ),
            format!("ethtool -X {} equal {}", link.name, queues.now),
        ));
    }
    let text = format!("{} entries of the RSS table, {least} to {most} for each receive queue", table.len());
    Some(HostFinding::ok("spread", text))
}

fn ring(link: &LinkReadings) -> HostFinding {
    match &link.ring {
        Ok(ring) if ring.now < RING_WANTED.min(ring.most) => HostFinding::warn(
            "ring",
            format!(
                "room for {} frames in each receive queue: short bursts are lost before they are judged",
                ring.now
            ),
            format!("ethtool -G {} rx {}", link.name, RING_WANTED.min(ring.most)),
        ),
        Ok(ring) => HostFinding::ok("ring", format!("room for {} frames in each receive queue", ring.now)),
        Err(why) => HostFinding::unknown("ring", why),
    }
}
