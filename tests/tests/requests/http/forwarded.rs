//! Whose word about an address counts.

use std::os::unix::net::UnixStream;

use ratelimit_tests::service::{Client, Service};

const POLICY: &str = "[[api]]\nname = \"a\"\nkey = [\"ip\"]\nlimits = [\"1/hour\"]\nipv6_prefix = 128\n";

#[test]
fn a_program_on_this_host_speaks_for_others() {
    let service = Service::start_listening(POLICY, "trusted_proxies = [\"10.0.0.0/8\"]");
    let mut client = service.connect();
    assert_eq!(client.get("/v1/check?api=a&ip=192.0.2.1").status, 200);
    assert_eq!(client.get_with("/v1/check?api=a", &[("X-RateLimit-Ip", "192.0.2.1")]).status, 429);
    // The same address by whichever way it is told.
    for chain in ["192.0.2.1", "198.51.100.1, 192.0.2.1, 10.0.0.1", "::ffff:192.0.2.1"] {
        assert_eq!(client.get_with("/v1/check?api=a", &[("X-Forwarded-For", chain)]).status, 429, "{chain}");
    }
    let lines = [("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-For", "192.0.2.1,10.0.0.1")];
    assert_eq!(client.get_with("/v1/check?api=a", &lines).status, 429);
    assert_eq!(client.get_with("/v1/check?api=a", &[("X-Forwarded-For", "192.0.2.2")]).status, 200);
    // What it says itself counts more than what proxies have said.
    let both = [("X-Forwarded-For", "192.0.2.1")];
    assert_eq!(client.get_with("/v1/check?api=a&ip=2001:db8::1", &both).status, 200);
    // It speaks for itself if it says nothing.
    assert_eq!(client.get("/v1/check?api=a").status, 200);
    assert_eq!(client.get("/v1/check?api=a&ip=127.0.0.1").status, 429);
}

#[test]
fn whoever_asks_through_the_socket_in_the_file_system_has_no_address_but_the_one_it_tells() {
    let service = Service::start(POLICY);
    let mut client = Client::new(UnixStream::connect(service.http_socket()).expect("connect"));
    let reply = client.get("/v1/check?api=a");
    assert_eq!(
        (reply.status, &reply.json()["detail"]),
        (400, &"ip is missing; requests for api \"a\" are counted by it".into())
    );
    assert_eq!(client.get("/v1/check?api=a&ip=192.0.2.1").status, 200);
    assert_eq!(client.get_with("/v1/check?api=a", &[("X-Forwarded-For", "192.0.2.1")]).status, 429);
}
