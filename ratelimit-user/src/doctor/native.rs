//! Native mode: whether the driver supports it, and what prevents it.

use super::{
    finding::HostFinding,
    readings::{HostReadings, LinkReadings},
};

/// Drivers with native mode in the oldest supported kernel, for kernels that do not report a driver's features.
const NATIVE_DRIVERS: [&str; 21] = [
    "bnxt_en",
    "dpaa2-eth",
    "ena",
    "gve",
    "hv_netvsc",
    "i40e",
    "ice",
    "igb",
    "igc",
    "ixgbe",
    "ixgbevf",
    "mlx4_en",
    "mlx5_core",
    "mvneta",
    "nfp",
    "qede",
    "sfc",
    "stmmac",
    "thunder-nic",
    "virtio_net",
    "xen-netfront",
];
/// Kinds of software links with native mode.
const NATIVE_KINDS: [&str; 3] = ["veth", "tun", "bond"];

/// The largest MTU in bytes with which a frame fits into one page, beside the room for programs and the kernel, and an Ethernet header with two VLAN tags.
const ONE_PAGE_MTU: u32 = 4_096 - 256 - 320 - 14 - 8;

/// Whether the driver supports native mode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Native {
    Yes,
    No,
    Unknown,
}

pub(super) fn examine(link: &LinkReadings, host: &HostReadings) -> Vec<HostFinding> {
    let native = native(link);
    let mut findings = vec![mode(link, native)];
    if native != Native::No {
        findings.extend(mtu(link));
        findings.extend(joined(link));
        findings.extend(virtio(link, host));
    } else if link.features.as_ref().is_ok_and(|features| features.contains("rx-gro")) {
        findings.push(HostFinding::warn(
            "receive_offload",
            "in generic mode packets are counted after the kernel has joined them: many small packets count as few large ones",
            format!("ethtool -K {} gro off", link.name),
        ));
    }
    findings
}

fn native(link: &LinkReadings) -> Native {
    if let Ok(support) = link.support {
        return if support.native { Native::Yes } else { Native::No };
    }
    let is_among =
        |names: &[&str], name: &Option<String>| name.as_deref().is_some_and(|name| names.contains(&name));
    match (&link.kind, &link.driver) {
        // A tun interface with Ethernet frames has native mode; one with IP packets does not.
        (Some(kind), _) if kind == "tun" && link.framing == Ok("ip") => Native::No,
        (kind @ Some(_), _) if is_among(&NATIVE_KINDS, kind) => Native::Yes,
        (Some(_), _) => Native::No,
        (None, driver) if is_among(&NATIVE_DRIVERS, driver) => Native::Yes,
        (None, _) => Native::Unknown,
    }
}

fn mode(link: &LinkReadings, native: Native) -> HostFinding {
    let what = link.driver.as_deref().or(link.kind.as_deref()).unwrap_or("the driver");
    match native {
        Native::Yes => HostFinding::ok("native_mode", format!("{what} runs XDP programs itself")),
        Native::No => HostFinding::warn(
            "native_mode",
            format!(
                "{what} does not run XDP programs: the program would run in generic mode, at about a tenth of the speed"
            ),
            "guard an interface whose driver has native XDP (docs/kernels.md); --require-native refuses generic mode",
        ),
        Native::Unknown => HostFinding::unknown(
            "native_mode",
            "this kernel does not say what a driver has (6.3 and newer do); ratelimit run tries it, and logs what it got",
        ),
    }
}

fn mtu(link: &LinkReadings) -> Option<HostFinding> {
    let mtu = link.mtu?;
    let has_pieces = link.support.as_ref().map_or(true, |support| support.pieces);
    Some(if mtu > ONE_PAGE_MTU && !has_pieces {
        HostFinding::warn(
            "mtu",
            format!(
                "{mtu}: the driver gives programs no frames of several pieces, and will refuse native mode"
            ),
            format!("ip link set dev {} mtu {ONE_PAGE_MTU}", link.name),
        )
    } else {
        HostFinding::ok("mtu", mtu)
    })
}

/// Checks for devices that merge packets before programs see them.
fn joined(link: &LinkReadings) -> Option<HostFinding> {
    let features = link.features.as_ref().ok()?;
    let on: Vec<&str> = [("rx-lro", "lro"), ("rx-gro-hw", "rx-gro-hw")]
        .into_iter()
        .filter_map(|(feature, word)| features.contains(feature).then_some(word))
        .collect();
    // Merging by virtio has a check of its own: the driver turns it off by itself if it can.
    if on.is_empty() || link.virtio.is_some() {
        return Some(HostFinding::ok(
            "receive_offload",
            "the device joins no packets before the program sees them",
        ));
    }
    let off: Vec<String> = on.iter().map(|word| format!("{word} off")).collect();
    Some(HostFinding::warn(
        "receive_offload",
        format!(
            "{} is on: the device joins packets, and most drivers refuse native mode then",
            on.join(" and ")
        ),
        format!("ethtool -K {} {}", link.name, off.join(" ")),
    ))
}

fn virtio(link: &LinkReadings, host: &HostReadings) -> Option<HostFinding> {
    let virtio = link.virtio?;
    if virtio.joins_packets && !virtio.can_be_turned_off {
        return Some(HostFinding::fail(
            "virtio",
            "the hypervisor joins packets and does not let the guest turn that off: native mode is refused",
            "on the hypervisor: ctrl_guest_offloads=on, or guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off",
        ));
    }
    let wanted = |now: u32| now.saturating_add(host.cpus);
    Some(match link.queues {
        Ok(queues) if queues.most < wanted(queues.now) => HostFinding::warn(
            "virtio",
            format!(
                "{} queue pairs, and {} at most: there is none left for the answers of each CPU, so SYN cookies and rejections share locked ones",
                queues.now, queues.most
            ),
            format!(
                "give the guest {} queue pairs (queues= on the hypervisor), or use fewer here: ethtool -L {} combined N",
                wanted(queues.now),
                link.name
            ),
        ),
        _ => HostFinding::ok("virtio", "nothing that the hypervisor offers is in the way"),
    })
}
