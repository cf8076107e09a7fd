//! Listeners that ask for something, and clients that come to them by cookie.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    cookie_site::{Asks, BY_COOKIE, BY_KERNEL, CookieSite, Ends},
    netns::{EDGE_V4, EDGE_V6, run},
};

const CLIENT_V4: &str = "10.99.0.2";
const CLIENT_V6: &str = "fd00:99:1::2";
const BOTH: [&str; 2] = [CLIENT_V4, CLIENT_V6];

const UPLOAD: usize = 8 << 20;
/// Longer than any upload takes that works, shorter than the one that does not.
const PATIENCE: Duration = Duration::from_secs(20);

/// Uploads over one connection, and says how long it took until the server had all of it.
fn upload(site: &CookieSite, server: &str, port: u16, listener: &TcpListener) -> Duration {
    let (mut client, by_cookie) = site.connect(server, port);
    assert_eq!(by_cookie, port == BY_COOKIE);
    let (mut served, _) = listener.accept().unwrap();
    served.set_read_timeout(Some(PATIENCE)).unwrap();
    let started = Instant::now();
    let writing = thread::spawn(move || client.write_all(&vec![7; UPLOAD]).map(|()| client));
    let (mut buffer, mut received) = (vec![0; 1 << 16], 0);
    while received < UPLOAD && started.elapsed() < PATIENCE {
        received += served.read(&mut buffer).unwrap();
    }
    let took = started.elapsed();
    drop(served);
    let _client = writing.join().unwrap();
    took
}

#[test]
fn an_upload_by_cookie_to_a_listener_with_a_set_buffer_is_not_slower_than_without() {
    let site = CookieSite::new(&BOTH);
    site.begin(EDGE_V4);
    // 64 KB: the kernel doubles it, and that is what listeners have who ask for nothing. Size alone does not tell them apart.
    let asks = Asks { buffer: Some(65_536), ..Asks::default() };
    for server in [EDGE_V4, EDGE_V6] {
        let listeners = [BY_KERNEL, BY_COOKIE].map(|port| (port, site.listen(server, port, asks)));
        let fastest = |(port, listener): &(u16, TcpListener)| {
            (0..3).map(|_| upload(&site, server, *port, listener)).min().unwrap()
        };
        let [by_kernel, by_cookie] = listeners.each_ref().map(fastest);
        println!("{server}: {by_kernel:?} by the kernel, {by_cookie:?} by cookie");
        // With scales that differ it was 21 ms and 11 s.
        assert!(by_cookie < 5 * by_kernel + Duration::from_secs(2), "{by_kernel:?}, {by_cookie:?}");
    }
}

/// Connects by both ways to listeners that ask for the same, and compares what the kernel chose with what the cookie said.
fn compare(site: &CookieSite, server: &str, asks: Asks) -> Ends {
    let [by_kernel, by_cookie] = [BY_KERNEL, BY_COOKIE].map(|port| {
        let listener = site.listen(server, port, asks);
        let (client, by_cookie) = site.connect(server, port);
        assert_eq!(by_cookie, port == BY_COOKIE);
        let _served = listener.accept().unwrap();
        site.ends(&client)
    });
    println!("{asks:?}: server {} client {}", by_cookie.server.trim(), by_cookie.client.trim());
    let scales = |ends: &Ends| {
        let (server, client) = (Ends::scales(&ends.server), Ends::scales(&ends.client));
        assert_eq!(
            server,
            client.map(|(sends, receives)| (receives, sends)),
            "{asks:?}: both ends: {ends:?}"
        );
        (server.is_some(), format!("{server:?}"))
    };
    assert_eq!(scales(&by_cookie), scales(&by_kernel), "{asks:?}");
    assert!(scales(&by_cookie).0, "{asks:?}: there is a scale");
    // What the client may send at once. (Half of a window of one segment is another matter: the kernel counts it with timestamps when
    // a SYN comes, and without when a cookie does.)
    if asks.buffer.is_none_or(|buffer| buffer > 4_096) {
        assert_eq!(Ends::word(&by_cookie.client, "mss:"), Ends::word(&by_kernel.client, "mss:"), "{asks:?}");
    }
    by_cookie
}

#[test]
fn both_ends_agree_on_scale_and_segment_whatever_the_listener_asks_for() {
    let site = CookieSite::new(&BOTH);
    site.begin(EDGE_V4);
    for server in [EDGE_V4, EDGE_V6] {
        for buffer in
            [None, Some(2_048), Some(32_768), Some(65_535), Some(65_536), Some(131_072), Some(1 << 30)]
        {
            compare(&site, server, Asks { buffer, ..Asks::default() });
        }
        for segment in [536, 1_300, 1_400] {
            compare(&site, server, Asks { segment: Some(segment), ..Asks::default() });
        }
        compare(&site, server, Asks { buffer: Some(32_768), segment: Some(1_300), ..Asks::default() });
        // Again as at first: nothing of the others is remembered.
        compare(&site, server, Asks::default());
    }
}

#[test]
fn listeners_that_share_a_port_may_ask_for_different_things() {
    let site = CookieSite::new(&BOTH);
    site.begin(EDGE_V4);
    for server in [EDGE_V4, EDGE_V6] {
        let listeners = [None, Some(65_536), Some(16_384)]
            .map(|buffer| site.listen(server, BY_COOKIE, Asks { buffer, shared: true, ..Asks::default() }));
        let mut seen = Vec::new();
        for _ in 0..24 {
            let (client, by_cookie) = site.connect(server, BY_COOKIE);
            assert!(by_cookie);
            let ends = site.ends(&client);
            let (theirs, ours) = (Ends::scales(&ends.client).unwrap(), Ends::scales(&ends.server).unwrap());
            assert_eq!(ours, (theirs.1, theirs.0), "{ends:?}");
            seen.push(ours.1.to_owned());
        }
        seen.sort();
        seen.dedup();
        println!("{server}: scales {seen:?}");
        assert!(seen.len() > 1, "connections went to more than one of them: {seen:?}");
        drop(listeners);
    }
}

#[test]
fn what_a_route_says_of_segments_holds_for_what_the_server_sends_and_not_for_what_it_announces() {
    let site = CookieSite::new(&BOTH);
    site.begin(EDGE_V4);
    // Back to the client, through a tunnel say: packets of 1300 bytes.
    let route = ["route", "replace", "10.99.0.2/32", "dev", "edge0", "mtu", "1300"];
    run(site.edge.wire.on_edge("ip").args(route));
    let ends = [BY_KERNEL, BY_COOKIE].map(|port| {
        let listener = site.listen(EDGE_V4, port, Asks::default());
        let (client, by_cookie) = site.connect(EDGE_V4, port);
        assert_eq!(by_cookie, port == BY_COOKIE);
        let _served = listener.accept().unwrap();
        site.ends(&client)
    });
    let [by_kernel, by_cookie] = ends
        .each_ref()
        .map(|ends| (Ends::word(&ends.server, "mss:").unwrap(), Ends::word(&ends.client, "mss:").unwrap()));
    println!("server's and client's segments: {by_kernel:?} by the kernel, {by_cookie:?} by cookie");
    assert_eq!(by_cookie.0, by_kernel.0, "what the server sends fits the route");
    // The kernel announces the route's, a cookie the interface's. A client that sends more than the way to us carries finds out as it does
    // for every other packet.
    assert_eq!((by_kernel.1, by_cookie.1), ("1248", "1448"));
}
