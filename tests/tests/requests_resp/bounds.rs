//! What a caller that makes no sense, or never listens, costs: its own connection.

use std::{fs, io::Write as _, net::TcpStream, time::Duration};

use ratelimit_tests::{
    resp::{Caller, packed},
    service::Service,
};

use crate::{caller, service};

const MIB: u64 = 1024 * 1024;

/// What the service has of the host's memory, in bytes.
fn resident(service: &Service) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.pid())).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

#[test]
fn nonsense_is_told_so_and_costs_one_connection() {
    let service = service();
    let mut healthy = caller(&service);
    let cases: [(&[u8], &str); 8] = [
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1000000\r\n", "invalid multibulk length"),
        (b"*1\r\n$999999999999999\r\n", "invalid bulk length"),
        (b"*1\r\n$65537\r\n", "invalid bulk length"),
        (b"*2\r\n$4\r\nPING\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n$4\r\nPINGS\r\n", "expected CRLF behind a string"),
        (b"ECHO \"a\r\n", "unbalanced quotes in request"),
        (b"GET \"\\x00\"\r\n", "escapes are not for inline requests, send an array"),
    ];
    for (bytes, fault) in cases {
        let mut odd = caller(&service);
        odd.send(&packed("PING first"));
        odd.send(bytes);
        odd.send(&packed("PING behind"));
        assert_eq!(odd.receive(), "first");
        assert_eq!(odd.receive(), format!("-ERR Protocol error: {fault}"));
        assert_eq!(odd.rest(), "", "nothing is answered behind {bytes:?}");
        assert_eq!(healthy.ask("PING"), "PONG");
    }
}

#[test]
fn a_line_or_a_request_without_an_end_is_cut_off_at_64_kib() {
    let service = service();
    for (begin, fault) in
        [("", "too big inline request"), ("*2\r\n$60000\r\n", "request of more than 65536 bytes")]
    {
        let mut caller = caller(&service);
        caller.send(begin.as_bytes());
        let long = "x".repeat(60_000);
        caller.send(long.as_bytes());
        // The other end may have had enough before all of it is there.
        let _cut = caller.try_send(
            format!("\r\n$60000\r\n{long}")
                .replace("\r\n", if begin.is_empty() { "yy" } else { "\r\n" })
                .as_bytes(),
        );
        assert_eq!(caller.receive(), format!("-ERR Protocol error: {fault}"));
    }
}

#[test]
fn lengths_that_are_only_announced_take_no_memory() {
    let service = service();
    assert_eq!(caller(&service).ask("PING"), "PONG");
    let before = resident(&service);
    let mut waiting: Vec<Caller<TcpStream>> = (0..500).map(|_| caller(&service)).collect();
    for caller in &mut waiting {
        caller.send(b"*64\r\n$60000\r\nab");
    }
    // The service has read them all: one thread answers in the order of arrival, and these come behind.
    for caller in &mut waiting[..2] {
        caller.send(b"cd");
    }
    assert_eq!(caller(&service).ask("PING"), "PONG");
    let grown = resident(&service).saturating_sub(before);
    println!("500 connections with an unfinished request: {} KiB", grown / 1024);
    assert!(grown < 8 * MIB, "{grown} bytes");
}

#[test]
fn garbage_leaves_nothing_behind() {
    let service = service();
    let mut rng = fastrand::Rng::with_seed(7);
    let attack = |rng: &mut fastrand::Rng| {
        let mut odd = caller(&service);
        let mut bytes: Vec<u8> = (0..rng.usize(1..40_000)).map(|_| rng.u8(..)).collect();
        if rng.bool() {
            bytes.splice(0..0, *b"*3\r\n$30000\r\n");
        }
        let _cut = odd.try_send(&bytes);
    };
    // Once, so that everything is there that is there in any case.
    (0..50).for_each(|_| attack(&mut rng));
    assert_eq!(caller(&service).ask("PING"), "PONG");
    let before = resident(&service);
    (0..500).for_each(|_| attack(&mut rng));
    assert_eq!(caller(&service).ask("PING"), "PONG");
    let grown = resident(&service).saturating_sub(before);
    println!("500 connections of garbage: {} KiB", grown / 1024);
    assert!(grown < 4 * MIB, "{grown} bytes");
}

#[test]
fn nothing_is_read_from_who_reads_no_answers() {
    let service = service();
    assert_eq!(caller(&service).ask("PING"), "PONG");
    let before = resident(&service);
    let question = packed(&format!("ECHO {}", "x".repeat(30_000)));
    let mut silent: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(service.resp).expect("connect")).collect();
    for stream in &mut silent {
        stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        let mut sent = 0_u64;
        while stream.write_all(&question).is_ok() {
            sent += question.len() as u64;
            assert!(sent < 200 * MIB, "somebody reads all of it");
        }
    }
    assert_eq!(caller(&service).ask("PING"), "PONG", "nobody else is kept waiting");
    let grown = resident(&service).saturating_sub(before);
    println!("20 connections that never read: {} KiB", grown / 1024);
    assert!(grown < 20 * MIB / 4, "{grown} bytes");
}
