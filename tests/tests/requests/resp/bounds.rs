//! What a caller that makes no sense, or never listens, costs: its own connection.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use ratelimit_tests::{
    resp::{Caller, packed},
    service::Service,
};

use super::{caller, service};

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

/// Whether the other end has hung up.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("no waiting");
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn unfinished_requests_have_a_bound_together() {
    let service = service();
    assert_eq!(caller(&service).ask("PING"), "PONG");
    let before = resident(&service);
    let half = format!("PING\r\n*2\r\n$65000\r\n{}", "x".repeat(60_000));
    let halves: Vec<TcpStream> = (0..1_500)
        .map(|_| {
            let mut stream = TcpStream::connect(service.resp).expect("connect");
            let _cut = stream.write_all(half.as_bytes());
            stream
        })
        .collect();
    assert_eq!(caller(&service).ask("PING"), "PONG", "nobody else is kept waiting");
    let grown = resident(&service).saturating_sub(before);
    println!("1500 half requests of 60 kB: {} MiB", grown / MIB);
    // Half of 90 MB at most, and some for the connections themselves.
    assert!(grown < 56 * MIB, "{grown} bytes");
    // Later ones are still there: those that had most of their time have gone.
    assert!(is_closed(&halves[0]) && !is_closed(&halves[1_499]));
}

#[test]
fn idle_connections_make_room_for_new_ones_and_unproven_ones_go_first() {
    // The limit of open files is that of the whole service: 16 places are what it always has.
    let service = super::service_with_open_files(300);
    let mut known: Vec<Caller<TcpStream>> = (0..10).map(|_| caller(&service)).collect();
    for caller in &mut known {
        assert_eq!(caller.ask("PING"), "PONG");
    }
    // More outsiders than there are places, who say nothing; and each is there.
    let silent: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(service.resp).expect("connect")).collect();
    let mut late = caller(&service);
    assert_eq!(late.ask("CL.THROTTLE k 0 1 60"), "0 1 0 -1 60");
    for caller in &mut known {
        assert_eq!(caller.ask("PING"), "PONG", "who has asked something stays");
    }
    // Another protocol has places of its own, and so has what operators use.
    assert_eq!(service.get("/healthz").status, 200);
    let open = fs::read_dir(format!("/proc/{}/fd", service.pid())).expect("a process").count();
    assert!(open < 300 - 100, "{open} files are open");
    assert!(silent.iter().filter(|stream| !is_closed(stream)).count() < 200);
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
