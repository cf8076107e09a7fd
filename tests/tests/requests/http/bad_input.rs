//! Questions that make no sense: a sentence about what is wrong, and nothing is counted.

use std::net::TcpStream;

use ratelimit_tests::{
    redis::free_port,
    service::{Client, Service},
};

const POLICY: &str = "[[api]]\nname = \"a\"\nlimits = [\"1/hour\"]\n[[api]]\nname = \"by-ip\"\nkey = [\"ip\"]\nlimits = [\"1/hour\"]\n";

#[test]
fn what_makes_no_sense_is_told_in_a_sentence_and_counts_nothing() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    for (target, status, sentence) in [
        ("/v1/check", 400, "api is missing; name the API that the request is for"),
        ("/v1/check?user=ann", 400, "api is missing"),
        ("/v1/check?user=ann&api=b", 404, "api \"b\" is not in the policy; there is a, by-ip"),
        (
            "/v1/check?api=a&user=ann&cost=-1",
            400,
            "cost \"-1\" is no whole number from 1 to 9007199254740991",
        ),
        ("/v1/check?api=a&user=ann&cost=0", 400, "cost \"0\" is no whole number"),
        ("/v1/check?api=a&user=ann&cost=99999999999999999999", 400, "cost \"99999999999999999999\""),
        ("/v1/check?api=a&user=ann&cost=one", 400, "cost \"one\""),
        ("/v1/check?api=a&user=ann&ip=localhost", 400, "ip \"localhost\" is no address"),
        (
            "/v1/check?api=a&user=ann&priority=urgent",
            400,
            "priority \"urgent\" is not critical, normal or background",
        ),
        ("/v1/check?api=a&user=ann&user=bob", 400, "user is given twice, as \"ann\" and as \"bob\""),
    ] {
        let reply = client.get(target);
        let detail = reply.json()["detail"].as_str().expect("a sentence").to_owned();
        assert_eq!(reply.status, status, "{target}: {detail}");
        assert!(detail.contains(sentence), "{target}: {detail}");
        assert_eq!(reply.field("content-type"), Some("application/problem+json"), "{target}");
    }
    let contradicted = client.get_with("/v1/check?api=a&user=ann", &[("X-RateLimit-User", "bob")]);
    assert_eq!(contradicted.status, 400);
    for user in ["ann", "bob"] {
        assert_eq!(client.get(&format!("/v1/check?api=a&user={user}")).status, 200);
    }
}

#[test]
fn a_name_is_of_any_bytes_as_long_as_it_likes_or_none_and_has_a_limit() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let long = |length: usize| format!("&user={}", "x".repeat(length));
    for user in
        ["", "&user=%ff", "&user=%fe", "&user=%", "&user=%25%25", &long(1_024), &long(1_025), &long(50_000)]
    {
        let target = format!("/v1/check?api=a{user}");
        assert_eq!(
            [client.get(&target).status, client.get(&target).status],
            [200, 429],
            "{} bytes",
            user.len()
        );
    }
    assert_eq!(client.get("/v1/check?api=a&user=").status, 429, "an empty name is none");
    client.send(b"GET /v1/check?api=a HTTP/1.1\r\nHost: h\r\nX-RateLimit-User: \xff\r\n\r\n");
    assert_eq!(client.receive().status, 429, "the same bytes in a field");
}

#[test]
fn bytes_that_are_no_http_end_the_connection_and_nothing_else() {
    let service = Service::start(POLICY);
    let long_head = format!("GET /v1/check?api=a&user={} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let fields = format!("GET /healthz HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(100_000));
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"*1\r\n$4\r\nPING\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/check HTTP/1.1\r\nContent-Length: -1\r\n\r\n{}",
        long_head.as_bytes(),
        fields.as_bytes(),
    ] {
        let mut client = service.connect();
        // The service may close before all bytes are sent.
        let _closed = std::io::Write::write_all(&mut client.stream(), bytes);
        let _closed = client.stream().shutdown(std::net::Shutdown::Write);
        let rest = client.rest();
        let said = String::from_utf8_lossy(&rest);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    }
    assert_eq!(service.get("/v1/check?api=a&user=ann").status, 200);
}

#[test]
fn a_request_names_one_host() {
    let metrics = free_port();
    let service = Service::start_listening(POLICY, &format!("metrics = \"127.0.0.1:{metrics}\""));
    let scraped = ("127.0.0.1".to_owned(), metrics);
    let asked = (service.http.ip().to_string(), service.http.port());
    for (address, target) in [(&asked, "/healthz"), (&asked, "/"), (&scraped, "/metrics")] {
        for (version, hosts, status) in [
            ("1.1", "Host: localhost\r\n", 200),
            ("1.1", "", 400),
            ("1.1", "Host: localhost\r\nHost: localhost\r\n", 400),
            ("1.0", "Host: localhost\r\nhost: other\r\n", 400),
        ] {
            let stream = TcpStream::connect((address.0.as_str(), address.1)).expect("connect");
            let mut client = Client::new(stream);
            client.send(format!("GET {target} HTTP/{version}\r\n{hosts}\r\n").as_bytes());
            assert_eq!(client.receive().status, status, "{target} HTTP/{version} {hosts:?}");
        }
    }
    let mut old = service.connect();
    old.send(b"GET /healthz HTTP/1.0\r\n\r\n");
    assert_eq!(old.receive().status, 200, "HTTP/1.0 has no such field");
}
