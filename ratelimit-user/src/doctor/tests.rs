//! Readings of hosts, and the findings that they must lead to.

use super::{
    Grade, HostFinding, Readings, examine,
    readings::{
        Attendance, DaemonReadings, HostReadings, LinkReadings, Occupant, ServerReadings, StoreReadings,
        Virtio, Wishes,
    },
};
use crate::{
    dataplane::{
        features::{DeviceExtent, DriverSupport},
        sysctl::TcpSettings,
    },
    store::redis::Persistence,
};

const ALL_RIGHTS: u64 = (1 << 41) - 1;

/// A host with one good interface, a store and a daemon, without any finding.
fn healthy() -> Readings {
    Readings {
        wishes: Wishes { cookies: true, answers: true, listens: true, elastic: true, counts_for_long: true },
        host: HostReadings {
            release: "6.18.44".to_owned(),
            interleaves: false,
            pin: "/sys/fs/bpf/ratelimit".into(),
            pin_problem: None,
            jit: Ok(1),
            jit_harden: Ok(0),
            btf: true,
            cpus: 8,
            memory_available: Ok(8 << 30),
            group_room: Ok(None),
            clock: Ok("tsc".to_owned()),
            headroom_notes: Vec::new(),
            tcp: TcpSettings { syncookies: 2, timestamps: 2, options: true, largest_buffer: 6_291_456 },
            translated: Ok(Vec::new()),
            open_files: Ok(Some(1 << 20)),
        },
        links: vec![LinkReadings {
            name: "eth0".to_owned(),
            kind: None,
            driver: Some("ice".to_owned()),
            framing: Ok("ethernet"),
            mtu: Some(1500),
            port_of: None,
            vlan_of: None,
            has_vlans: false,
            takes_answers: None,
            support: Ok(DriverSupport { native: true, pieces: true }),
            features: Ok(["rx-gro", "rx-checksum"].map(str::to_owned).into()),
            ring: Ok(DeviceExtent { now: 2048, most: 8160 }),
            queues: Ok(DeviceExtent { now: 8, most: 64 }),
            spread: Ok((0..128).map(|entry| entry % 8).collect()),
            virtio: None,
            occupant: Occupant::Ours("native"),
        }],
        store: Some(StoreReadings {
            address: "redis://10.0.0.5:6379".to_owned(),
            servers: Ok(vec![ServerReadings {
                at: "10.0.0.5:6379".to_owned(),
                version: "7.2.4".to_owned(),
                is_master: true,
                maxmemory: 1 << 30,
                maxmemory_policy: "noeviction".to_owned(),
                persistence: Persistence::Log,
            }]),
        }),
        attendance: Attendance::Daemon(Ok(DaemonReadings {
            pid: 812,
            build: "0.1.0+abc".to_owned(),
            capabilities: Ok(ALL_RIGHTS),
            warnings: Vec::new(),
            protected: true,
        })),
    }
}

fn found(readings: &Readings) -> Vec<HostFinding> {
    examine(readings).into_iter().filter(|finding| finding.grade != Grade::Ok).collect()
}

/// The one finding after a change of a healthy host.
fn one(change: impl FnOnce(&mut Readings)) -> HostFinding {
    let mut readings = healthy();
    change(&mut readings);
    let mut found = found(&readings);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn assert_finding(finding: &HostFinding, check: &str, grade: Grade, words: &str) {
    let said = format!("{} {}", finding.message, finding.remedy.as_deref().unwrap_or_default());
    assert_eq!((finding.check, finding.grade), (check, grade), "{said}");
    assert!(said.contains(words), "{words:?} is not in: {said}");
    assert_eq!(finding.remedy.is_some(), grade.is_found(), "a finding has a remedy: {said}");
}

#[test]
fn a_host_that_is_as_it_should_be_has_a_line_for_everything_and_no_finding() {
    assert_eq!(found(&healthy()), []);
    let all = examine(&healthy());
    let checks: Vec<&str> = all.iter().map(|finding| finding.check).collect();
    for check in [
        "kernel",
        "bpf_file_system",
        "jit",
        "btf",
        "memory",
        "memory_limit",
        "clock_source",
        "syn_cookies",
        "headroom",
        "open_files",
        "link_type",
        "structure",
        "program",
        "native_mode",
        "mtu",
        "receive_offload",
        "vlan_offload",
        "queues",
        "spread",
        "ring",
        "store",
        "daemon",
        "capabilities",
    ] {
        assert_eq!(checks.iter().filter(|one| **one == check).count(), 1, "{check} in {checks:?}");
    }
}

#[test]
fn each_thing_of_a_host_that_is_in_the_way_is_one_finding_with_its_remedy() {
    use Grade::{Fail, Unknown, Warn};
    type Change = fn(&mut HostReadings);
    let cases: [(Change, &str, Grade, &str); 20] = [
        (|host| host.release = "5.10.0-30-amd64".to_owned(), "kernel", Fail, "6.1 or newer"),
        (|host| host.release = "unheard".to_owned(), "kernel", Unknown, "no version"),
        (|host| host.interleaves = true, "kernel", Warn, "PREEMPT_RT"),
        (
            |host| host.pin_problem = Some("no BPF file system at /x".to_owned()),
            "bpf_file_system",
            Fail,
            "mount -t bpf",
        ),
        (|host| host.jit = Ok(0), "jit", Warn, "bpf_jit_enable=1"),
        (|host| host.jit_harden = Ok(2), "jit", Warn, "bpf_jit_harden=1"),
        (|host| host.jit = Err("cannot read x".to_owned()), "jit", Unknown, "cannot read x"),
        (|host| host.btf = false, "btf", Warn, "CONFIG_DEBUG_INFO_BTF"),
        (|host| host.memory_available = Ok(100 << 20), "memory", Warn, "100 MiB"),
        (|host| host.group_room = Ok(Some(64 << 20)), "memory_limit", Warn, "MemoryMax="),
        (|host| host.group_room = Err("version 1".to_owned()), "memory_limit", Unknown, "version 1"),
        (|host| host.clock = Ok("hpet".to_owned()), "clock_source", Warn, "hpet"),
        (|host| host.clock = Ok("acpi_pm".to_owned()), "clock_source", Warn, "clocksource=tsc"),
        (|host| host.tcp.syncookies = 1, "syn_cookies", Fail, "tcp_syncookies=2"),
        (|host| host.tcp.timestamps = 1, "syn_cookies", Warn, "tcp_timestamps=2"),
        (
            |host| host.translated = Ok(vec![("web".to_owned(), "port 80 is elsewhere".to_owned())]),
            "syn_cookies",
            Warn,
            "no cookies are sent for web: port 80 is elsewhere",
        ),
        (|host| host.translated = Err("not root".to_owned()), "syn_cookies", Unknown, "not root"),
        (
            |host| host.headroom_notes = vec!["CPU pressure is not measured".to_owned()],
            "headroom",
            Warn,
            "psi=1",
        ),
        (|host| host.open_files = Ok(Some(1024)), "open_files", Warn, "LimitNOFILE="),
        (|host| host.open_files = Err("secret".to_owned()), "open_files", Unknown, "secret"),
    ];
    for (change, check, grade, words) in cases {
        assert_finding(&one(|readings| change(&mut readings.host)), check, grade, words);
    }
}

#[test]
fn what_no_policy_asks_for_is_no_finding() {
    let mut readings = healthy();
    readings.wishes = Wishes::default();
    readings.host.tcp = TcpSettings { syncookies: 1, timestamps: 1, ..readings.host.tcp };
    readings.host.btf = false;
    readings.host.headroom_notes = vec!["CPU pressure is not measured".to_owned()];
    readings.host.open_files = Ok(Some(1024));
    readings.links[0].features = Ok(["rx-vlan-hw-parse".to_owned()].into());
    readings.links[0].has_vlans = true;
    readings.store = None;
    assert_eq!(found(&readings), []);
}

#[test]
fn each_thing_of_an_interface_that_is_in_the_way_is_one_finding_with_its_remedy() {
    use Grade::{Fail, Unknown, Warn};
    type Change = fn(&mut LinkReadings);
    let cases: [(Change, &str, Grade, &str); 25] = [
        (|link| link.framing = Err("GRE tunnels show".to_owned()), "link_type", Fail, "come in by"),
        (
            |link| link.occupant = Occupant::Foreign(7, "their_xdp".to_owned()),
            "program",
            Fail,
            "ip link set dev eth0 xdp off",
        ),
        (
            |link| link.occupant = Occupant::Foreign(7, "xdp_dispatcher".to_owned()),
            "program",
            Fail,
            "xdp-loader unload eth0",
        ),
        (
            |link| link.occupant = Occupant::Unnamed(7, "only root may ask".to_owned()),
            "program",
            Unknown,
            "only root",
        ),
        (|link| link.occupant = Occupant::Ours("generic"), "program", Warn, "generic mode"),
        (
            |link| (link.kind, link.vlan_of) = (Some("vlan".to_owned()), Some("eno1".to_owned())),
            "structure",
            Warn,
            "guard eno1",
        ),
        (|link| link.kind = Some("bridge".to_owned()), "structure", Warn, "guard its ports"),
        (
            |link| link.port_of = Some(("bond0".to_owned(), "bond".to_owned())),
            "structure",
            Warn,
            "guard bond0",
        ),
        (|link| link.support = Err("no family".to_owned()), "native_mode", Unknown, "6.3 and newer"),
        (
            |link| {
                (link.support, link.features) =
                    (Ok(DriverSupport { native: false, pieces: false }), Ok([].into()));
            },
            "native_mode",
            Warn,
            "--require-native",
        ),
        (
            |link| (link.mtu, link.support) = (Some(9000), Ok(DriverSupport { native: true, pieces: false })),
            "mtu",
            Warn,
            "ip link set dev eth0 mtu 3498",
        ),
        (
            |link| link.features = Ok(["rx-lro".to_owned()].into()),
            "receive_offload",
            Warn,
            "ethtool -K eth0 lro off",
        ),
        (
            |link| link.features = Ok(["rx-lro", "rx-gro-hw"].map(str::to_owned).into()),
            "receive_offload",
            Warn,
            "lro off rx-gro-hw off",
        ),
        (
            |link| (link.features, link.has_vlans) = (Ok(["rx-vlan-hw-parse".to_owned()].into()), true),
            "vlan_offload",
            Warn,
            "ethtool -K eth0 rxvlan off",
        ),
        (
            |link| link.takes_answers = Some(Ok(false)),
            "far_end",
            Warn,
            "XDP program that passes every packet",
        ),
        (|link| link.takes_answers = Some(Err("no rights".to_owned())), "far_end", Unknown, "no rights"),
        (
            |link| link.queues = Ok(DeviceExtent { now: 2, most: 64 }),
            "queues",
            Warn,
            "ethtool -L eth0 combined 8",
        ),
        (|link| link.queues = Ok(DeviceExtent { now: 2, most: 4 }), "queues", Warn, "combined 4"),
        (|link| link.queues = Err("it does not say".to_owned()), "queues", Unknown, "it does not say"),
        (|link| link.spread = Ok(vec![0; 128]), "spread", Warn, "ethtool -X eth0 equal 8"),
        (
            |link| link.spread = Ok((0..128).map(|entry| if entry < 64 { 0 } else { entry % 8 }).collect()),
            "spread",
            Warn,
            "one receive queue has 72 and another 8",
        ),
        (
            |link| link.ring = Ok(DeviceExtent { now: 256, most: 4096 }),
            "ring",
            Warn,
            "ethtool -G eth0 rx 1024",
        ),
        (|link| link.ring = Err("it does not say".to_owned()), "ring", Unknown, "it does not say"),
        (
            |link| link.virtio = Some(Virtio { joins_packets: true, can_be_turned_off: false }),
            "virtio",
            Fail,
            "ctrl_guest_offloads=on",
        ),
        (
            |link| {
                (link.virtio, link.queues) = (
                    Some(Virtio { joins_packets: true, can_be_turned_off: true }),
                    Ok(DeviceExtent { now: 8, most: 8 }),
                );
            },
            "virtio",
            Warn,
            "16 queue pairs",
        ),
    ];
    for (change, check, grade, words) in cases {
        let finding = one(|readings| {
            // On kernels that do not report features, native mode depends on the driver's name.
            readings.links[0].driver = Some("unheard_of".to_owned());
            change(&mut readings.links[0]);
        });
        assert_finding(&finding, check, grade, words);
        assert_eq!(finding.interface.as_deref(), Some("eth0"));
    }
}

#[test]
fn what_cannot_be_better_is_no_finding() {
    type Change = fn(&mut LinkReadings);
    let cases: [Change; 10] = [
        |link| link.spread = Err("the driver has no table".to_owned()),
        |link| link.spread = Ok(Vec::new()),
        |link| link.queues = Ok(DeviceExtent { now: 1, most: 1 }),
        |link| link.ring = Ok(DeviceExtent { now: 512, most: 512 }),
        |link| (link.mtu, link.support) = (Some(9000), Ok(DriverSupport { native: true, pieces: true })),
        |link| link.port_of = Some(("br0".to_owned(), "bridge".to_owned())),
        |link| link.framing = Ok("ip"),
        |link| link.support = Err("an old kernel, and a driver that is known".to_owned()),
        |link| {
            (link.kind, link.driver, link.support) =
                (Some("veth".to_owned()), None, Err("an old kernel".to_owned()));
        },
        |link| link.virtio = Some(Virtio { joins_packets: true, can_be_turned_off: true }),
    ];
    for (number, change) in cases.into_iter().enumerate() {
        let mut readings = healthy();
        change(&mut readings.links[0]);
        assert_eq!(found(&readings), [], "case {number}");
    }
}

#[test]
fn on_kernels_that_do_not_say_a_tun_has_native_mode_if_its_frames_are_ethernet() {
    for (framing, checks) in [("ethernet", &[][..]), ("ip", &["native_mode", "receive_offload"])] {
        let mut readings = healthy();
        let link = &mut readings.links[0];
        (link.kind, link.framing, link.support) =
            (Some("tun".to_owned()), Ok(framing), Err("an old kernel".to_owned()));
        let found: Vec<&str> = found(&readings).iter().map(|finding| finding.check).collect();
        assert_eq!(found, checks, "{framing}");
    }
}

#[test]
fn without_native_mode_joined_packets_are_a_finding_of_their_own() {
    let mut readings = healthy();
    readings.links[0].support = Ok(DriverSupport { native: false, pieces: false });
    let checks: Vec<&str> = found(&readings).iter().map(|finding| finding.check).collect();
    assert_eq!(checks, ["native_mode", "receive_offload"]);
}

#[test]
fn a_store_that_is_away_forgets_or_follows_is_a_finding() {
    use Grade::{Fail, Warn};
    type Change = fn(&mut ServerReadings);
    let cases: [(Change, Grade, &str); 5] = [
        (|server| server.persistence = Persistence::Nothing, Warn, "appendonly yes"),
        (|server| server.maxmemory_policy = "allkeys-lru".to_owned(), Fail, "maxmemory-policy noeviction"),
        (|server| server.maxmemory_policy = "volatile-ttl".to_owned(), Fail, "spend it again"),
        (
            |server| (server.maxmemory_policy, server.maxmemory) = ("allkeys-lru".to_owned(), 0),
            Warn,
            "maxmemory is 0",
        ),
        (|server| server.is_master = false, Fail, "replica"),
    ];
    for (change, grade, words) in cases {
        let finding = one(|readings| {
            let servers = readings.store.as_mut().unwrap().servers.as_mut().unwrap();
            change(&mut servers[0]);
        });
        assert_finding(&finding, "store", grade, words);
    }
    let away =
        one(|readings| readings.store.as_mut().unwrap().servers = Err("connection refused".to_owned()));
    assert_finding(&away, "store", Fail, "connection refused");
}

#[test]
fn only_counts_that_last_need_a_store_that_writes() {
    for (persistence, counts_for_long, count) in [
        (Persistence::Nothing, true, 1),
        (Persistence::Nothing, false, 0),
        (Persistence::Unknown, true, 0),
        (Persistence::Snapshots, true, 0),
    ] {
        let mut readings = healthy();
        readings.wishes.counts_for_long = counts_for_long;
        readings.store.as_mut().unwrap().servers.as_mut().unwrap()[0].persistence = persistence;
        assert_eq!(found(&readings).len(), count, "{persistence:?} {counts_for_long}");
    }
}

#[test]
fn a_daemon_that_is_gone_helpless_or_warns_is_a_finding() {
    use Grade::{Fail, Unknown, Warn};
    let daemon = |capabilities: u64, protected, warnings: &[&str]| {
        Attendance::Daemon(Ok(DaemonReadings {
            pid: 812,
            build: "0.1.0".to_owned(),
            capabilities: Ok(capabilities),
            warnings: warnings.iter().map(ToString::to_string).collect(),
            protected,
        }))
    };
    let (net_admin, bpf, perfmon, sys_admin) = (1 << 12, 1 << 39, 1 << 38, 1 << 21);
    for (attendance, check, grade, words) in [
        (Attendance::Abandoned(vec!["eth0".to_owned()]), "daemon", Warn, "ratelimit run --policy"),
        (Attendance::Daemon(Err("not permitted".to_owned())), "daemon", Unknown, "not permitted"),
        (daemon(ALL_RIGHTS, false, &[]), "daemon", Fail, "NOT PROTECTED"),
        (daemon(net_admin, true, &[]), "capabilities", Fail, "lacks CAP_BPF"),
        (daemon(sys_admin, true, &[]), "capabilities", Fail, "lacks CAP_NET_ADMIN:"),
        (daemon(0, true, &[]), "capabilities", Fail, "CAP_NET_ADMIN and CAP_BPF"),
        (daemon(net_admin | bpf, true, &[]), "capabilities", Warn, "CAP_PERFMON"),
        (daemon(ALL_RIGHTS, true, &["NOTHING IS DROPPED"]), "status", Warn, "NOTHING IS DROPPED"),
    ] {
        assert_finding(&one(|readings| readings.attendance = attendance), check, grade, words);
    }
    for capable in [net_admin | bpf | perfmon, net_admin | sys_admin] {
        let mut readings = healthy();
        readings.attendance = daemon(capable, true, &[]);
        assert_eq!(found(&readings), []);
    }
}
