//! Whose word about an address counts.

use std::{
    fs,
    net::{IpAddr, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
};

use ratelimit_tests::{
    daemon::{Daemon, Edge, binary},
    netns::EDGE_V4,
    service::{Client, Service},
};
use socket2::{Domain, Socket, Type};

const POLICY: &str = "[[api]]\nname = \"a\"\nkey = [\"ip\"]\nlimits = [\"1/hour\"]\nipv6_prefix = 128\n";

#[test]
fn a_program_on_this_host_speaks_for_others() {
    let service = Service::start_listening(POLICY, "trusted_proxies = [\"10.0.0.0/8\"]");
    let mut client = service.connect();
    assert_eq!(client.get("/v1/check?api=a&ip=192.0.2.1").status, 200);
    assert_eq!(client.get_with("/v1/check?api=a", &[("X-RateLimit-Ip", "192.0.2.1")]).status, 429);
    // One address counts as one, by whichever way it is told.
    for chain in ["192.0.2.1", "198.51.100.1, 192.0.2.1, 10.0.0.1", "::ffff:192.0.2.1"] {
        assert_eq!(client.get_with("/v1/check?api=a", &[("X-Forwarded-For", chain)]).status, 429, "{chain}");
    }
    let lines = [("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-For", "192.0.2.1,10.0.0.1")];
    assert_eq!(client.get_with("/v1/check?api=a", &lines).status, 429);
    assert_eq!(client.get_with("/v1/check?api=a", &[("X-Forwarded-For", "192.0.2.2")]).status, 200);
    // What it says itself counts more than what proxies have said.
    let both = [("X-Forwarded-For", "192.0.2.1")];
    assert_eq!(client.get_with("/v1/check?api=a&ip=2001:db8::1", &both).status, 200);
    // A program that forwards for nobody speaks for itself.
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

/// A connection to the service on the edge, from one address of the network in front of it.
fn from(edge: &Edge, source: &str, to: SocketAddr) -> Client<TcpStream> {
    let source = SocketAddr::new(source.parse::<IpAddr>().unwrap(), 0);
    let stream = edge.wire.as_net(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&source.into()).unwrap();
        socket.connect(&to.into()).unwrap();
        socket
    });
    Client::new(stream.into())
}

#[test]
fn a_peer_elsewhere_speaks_for_itself_unless_the_policy_trusts_it() {
    const TOKEN: &str = "a-token-for-this-test-alone";
    let (outsider, proxy) = ("10.99.0.7", "10.99.0.8");
    let edge = Edge::new();
    for source in [outsider, proxy] {
        edge.wire.add_source(source.parse().unwrap());
    }
    let (http, token) = (SocketAddr::new(EDGE_V4.parse().unwrap(), 8_080), edge.dir().join("token"));
    fs::write(&token, TOKEN).unwrap();
    edge.write_policy(&format!(
        "{POLICY}[listen]\nhttp = \"{http}\"\ntoken_file = \"{}\"\ntrusted_proxies = [\"{proxy}\"]\n",
        token.display()
    ));
    let mut command = edge.wire.on_edge(binary("ratelimit"));
    command.arg("serve").arg("--policy").arg(edge.policy());
    let _daemon = Daemon::start(command);
    let authorization = format!("Bearer {TOKEN}");
    let ask = |client: &mut Client<TcpStream>, path: &str, forwarded: Option<&str>| {
        let mut fields = vec![("Authorization", authorization.as_str())];
        fields.extend(forwarded.map(|chain| ("X-Forwarded-For", chain)));
        client.get_with(path, &fields).status
    };
    let mut client = from(&edge, outsider, http);
    // Whatever it says, in whichever way, it is one and the same: it has one an hour.
    assert_eq!(ask(&mut client, "/v1/check?api=a&ip=192.0.2.1", None), 200);
    for ip in ["192.0.2.2", "192.0.2.3", proxy, "127.0.0.1"] {
        assert_eq!(ask(&mut client, &format!("/v1/check?api=a&ip={ip}"), None), 429, "{ip}");
        assert_eq!(ask(&mut client, "/v1/check?api=a", Some(ip)), 429, "{ip}");
    }
    assert_eq!(ask(&mut client, "/v1/check?api=a", None), 429);
    // Nobody else was charged for it, and nobody else can be charged in its place.
    let mut client = from(&edge, proxy, http);
    for ip in ["192.0.2.1", "192.0.2.2"] {
        assert_eq!(ask(&mut client, &format!("/v1/check?api=a&ip={ip}"), None), 200, "{ip}");
        assert_eq!(ask(&mut client, "/v1/check?api=a", Some(ip)), 429, "{ip}");
    }
    assert_eq!(ask(&mut client, "/v1/check?api=a", Some(outsider)), 429, "the outsider's own");
    assert_eq!(ask(&mut client, "/v1/check?api=a", Some(&format!("198.51.100.1, {proxy}"))), 200);
}
