//! Reads an interface over netlink, and the driver of its device from the system file system.

use std::{fs, path::Path};

use crate::{
    dataplane::{
        features,
        framing::Framing,
        interface::{Interface, has_vlans},
        pin::PinDir,
        pinned_link,
        presence::Presence,
        probe,
    },
    doctor::readings::{LinkReadings, Occupant, Virtio},
};

pub(super) fn read(interface: &Interface, all: &[Interface], pins: &PinDir) -> LinkReadings {
    let index = interface.index;
    let by_index = |wanted: u32| all.iter().find(|other| other.index == wanted);
    let above = interface.port_of.and_then(by_index);
    let device = interface.device.as_ref().map(|(bus, name)| format!("/sys/bus/{bus}/devices/{name}"));
    let driver = device.as_ref().and_then(|device| driver(Path::new(device)));
    // Software links have no rings and no channels: only the kernel's own number of queues is known.
    let queues = features::queues(index).or_else(|error| {
        interface.rx_queues.map(|now| features::DeviceExtent { now, most: now }).ok_or(error)
    });
    LinkReadings {
        name: interface.name.clone(),
        framing: interface.framing.clone().map(Framing::name),
        mtu: interface.mtu,
        port_of: above
            .map(|above| (above.name.clone(), above.kind.clone().unwrap_or_else(|| "device".to_owned()))),
        vlan_of: interface.vlan_of.and_then(by_index).map(|below| below.name.clone()),
        has_vlans: has_vlans(all, index),
        takes_answers: interface.far_end.map(|far_end| {
            far_end.takes_answers().map_err(|error| format!("the other end is not told of: {error}"))
        }),
        support: features::driver_support(index).map_err(|error| error.to_string()),
        features: features::active(index).map_err(|error| error.to_string()),
        ring: features::ring(index).map_err(|_| "the driver has no ring whose size it tells".to_owned()),
        queues: queues.map_err(|error| error.to_string()),
        spread: features::spread(index).map_err(|error| error.to_string()),
        virtio: driver
            .as_deref()
            .filter(|driver| *driver == "virtio_net")
            .and_then(|_| fs::read_to_string(format!("{}/features", device.as_deref()?)).ok())
            .map(|bits| virtio(bits.trim())),
        occupant: occupant(interface, all, pins),
        kind: interface.kind.clone(),
        driver,
    }
}

fn driver(device: &Path) -> Option<String> {
    let driver = fs::read_link(device.join("driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// The virtio features in use (linux/virtio_net.h), from a text of zeros and ones.
fn virtio(bits: &str) -> Virtio {
    let has = |bit: usize| bits.as_bytes().get(bit) == Some(&b'1');
    // GUEST_TSO4, GUEST_TSO6, GUEST_ECN, GUEST_UFO; CTRL_GUEST_OFFLOADS.
    Virtio { joins_packets: (7..=10).any(has), can_be_turned_off: has(2) }
}

fn occupant(interface: &Interface, all: &[Interface], pins: &PinDir) -> Occupant {
    let Some(attached) = interface.attached else { return Occupant::Nobody };
    if let Presence::Ours(ours) = Presence::among(pins, all, &interface.name) {
        return Occupant::Ours(ours.mode.name());
    }
    match pinned_link::program_name(attached.program_id) {
        Some(name) => Occupant::Foreign(attached.program_id, name),
        None if probe::require_rights("reading programs").is_err() => {
            Occupant::Unnamed(attached.program_id, "only root may ask whose it is".to_owned())
        }
        None => Occupant::Foreign(attached.program_id, "without a name".to_owned()),
    }
}

/// The interfaces of default routes.
pub(super) fn with_default_route(proc: &Path) -> Vec<String> {
    let read = |name: &str| fs::read_to_string(proc.join(name)).unwrap_or_default();
    default_routes(&read("net/route"), &read("net/ipv6_route"))
}

fn default_routes(v4: &str, v6: &str) -> Vec<String> {
    let of_v4 = v4.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_default = words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000");
        words.first().filter(|_| is_default).map(|name| (*name).to_owned())
    });
    let of_v6 = v6.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_default = words.get(1) == Some(&"00") && words.first()?.bytes().all(|digit| digit == b'0');
        words.last().filter(|name| is_default && **name != "lo").map(|name| (*name).to_owned())
    });
    let mut names: Vec<String> = of_v4.chain(of_v6).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_of_virtio_say_whether_packets_are_joined_and_whether_that_can_be_turned_off() {
        let bits = |on: &[usize]| -> String {
            (0..64).map(|bit| if on.contains(&bit) { '1' } else { '0' }).collect()
        };
        for (on, joins_packets, can_be_turned_off) in
            [(&[7, 8][..], true, false), (&[2, 7], true, true), (&[2], false, true), (&[], false, false)]
        {
            assert_eq!(virtio(&bits(on)), Virtio { joins_packets, can_be_turned_off }, "{on:?}");
        }
        assert_eq!(virtio(""), Virtio { joins_packets: false, can_be_turned_off: false });
    }

    #[test]
    fn interfaces_with_a_default_route_are_found_once_in_both_families() {
        let v4 = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                  eth0 00000000 FE00630A 0003 0 0 100 00000000 0 0 0\n\
                  eth1 0000630A 00000000 0001 0 0 100 0000FFFF 0 0 0\n";
        let zeros = "0".repeat(32);
        let v6 = format!(
            "{zeros} 00 {zeros} 00 fe80 00 1 0 3 eth0\n{zeros} 00 {zeros} 00 {zeros} ff 1 0 200 lo\n"
        );
        assert_eq!(default_routes(v4, &v6), ["eth0"]);
        assert_eq!(default_routes("", ""), Vec::<String>::new());
    }
}
