//! When SYNs are answered with cookies, and until when: the packet path on the host, with the clock as a number.

use ratelimit_common::abi::Reason;
use ratelimit_ebpf::tables::Successor;
use ratelimit_tests::{
    frames::{ACK, Ipv4, SYN},
    memory::Memory,
    policies,
};
use ratelimit_user::compile::lists::Lists;

const SECOND: u64 = 1_000_000_000;

fn host(source: &str) -> Memory {
    let service = "[[service]]\nname = \"web\"\nmatch = { protocol = \"tcp\", ports = [80] }\n";
    let text = format!("[source]\n{source}\n{service}syn_cookies = \"10 syns/s burst 20\"\n");
    Memory::new(&policies::policy(&text), Lists::new())
}

/// SYNs, each from another source; how many were for the program that answers.
fn syns(host: &Memory, count: u32, from: u32) -> usize {
    host.handed_over.borrow_mut().clear();
    for index in 0..count {
        host.run(&Ipv4::from(0x0a00_0000 + from + index).tcp_frame(SYN));
    }
    assert!(host.handed_over.borrow().iter().all(|to| *to == Successor::Answer));
    host.handed_over.borrow().len()
}

/// Whether other TCP has to prove itself.
fn is_defended(host: &Memory) -> bool {
    host.handed_over.borrow_mut().clear();
    host.run(&Ipv4::from([198, 51, 100, 1]).tcp_frame(ACK));
    *host.handed_over.borrow() == [Successor::Prove]
}

const GENEROUS: &str = "limits = [\"100000 packets/s burst 200000\"]";

#[test]
fn cookies_begin_above_the_threshold_and_end_ten_seconds_after_the_last_syn_above_it() {
    let host = host(GENEROUS);
    assert_eq!(syns(&host, 20, 0), 0, "the burst is the kernel's");
    assert!(!is_defended(&host));
    assert_eq!(syns(&host, 5, 100), 5, "from the first above it on");
    assert!(is_defended(&host));
    let crossed = host.now_ns.get();
    // Below the threshold from now on: still answered, and still not prolonged.
    for tenth in 1..=99 {
        host.now_ns.set(crossed + tenth * SECOND / 10);
        assert_eq!(syns(&host, u32::from(tenth % 2 == 0), 200 + tenth as u32), usize::from(tenth % 2 == 0));
    }
    assert!(is_defended(&host));
    host.now_ns.set(crossed + 10 * SECOND);
    assert!(!is_defended(&host));
    assert_eq!(syns(&host, 1, 999), 0);
}

#[test]
fn a_flood_that_goes_on_keeps_cookies_on() {
    let host = host(GENEROUS);
    syns(&host, 30, 0);
    for second in 0..60 {
        host.now_ns.set(host.now_ns.get() + SECOND);
        assert_eq!(syns(&host, 30, 1_000 * second), 30, "second {second}");
    }
    // The end is moved on about once a second and not for each SYN, so it may come that much early.
    host.now_ns.set(host.now_ns.get() + 9 * SECOND - 1);
    assert!(is_defended(&host));
    host.now_ns.set(host.now_ns.get() + SECOND + 1);
    assert!(!is_defended(&host));
}

#[test]
fn a_source_over_its_own_limit_neither_turns_cookies_on_nor_is_answered() {
    let host = host("limits = [\"15 syns/day\"]");
    for _ in 0..100 {
        host.run(&Ipv4::from([192, 0, 2, 7]).tcp_frame(SYN));
    }
    assert!(!is_defended(&host), "one source alone is held by its limit");
    assert_eq!(syns(&host, 30, 0), 25, "fifteen of twenty were used up");
    host.handed_over.borrow_mut().clear();
    host.run(&Ipv4::from([192, 0, 2, 7]).tcp_frame(SYN));
    assert!(host.handed_over.borrow().is_empty());
    assert_eq!(host.counters()[Reason::LimitSyns as usize].1.packets, 86);
}

#[test]
fn other_services_and_protocols_are_left_alone() {
    let host = host(GENEROUS);
    syns(&host, 30, 0);
    host.handed_over.borrow_mut().clear();
    let mut elsewhere = Ipv4::from([192, 0, 2, 7]).tcp_frame(ACK);
    elsewhere[37] = 81;
    host.run(&elsewhere);
    host.run(&Ipv4::from([192, 0, 2, 7]).udp_frame(8));
    let first_fragment = Ipv4 { fragment: 0x2000, ..Ipv4::from([192, 0, 2, 7]) };
    host.run(&first_fragment.tcp_frame(SYN));
    assert!(host.handed_over.borrow().is_empty());
}
