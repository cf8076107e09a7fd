//! A site whose SYNs are answered with cookies, all but the first, and a port beside it where none are.

use std::{
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use aya::Ebpf;
use socket2::{Domain, Socket, Type};

use crate::{
    daemon::{Daemon, Edge},
    netns::run,
};

/// The port where SYNs are answered with cookies.
pub const BY_COOKIE: u16 = 4711;
/// The port where the kernel answers SYNs.
pub const BY_KERNEL: u16 = 4712;

/// Every SYN but the first is above this, and each keeps cookies on for the next ten seconds: nobody has to flood anything.
const POLICY: &str = r#"
[source]
limits = ["1000000 packets/s burst 2000000"]

[[service]]
name = "web"
match = { protocol = "tcp", ports = [4711] }
syn_cookies = "1 syns/day burst 1"
"#;

/// An edge host under a daemon, whose kernel takes cookies that were sent for it, and options with them.
#[derive(Debug)]
pub struct CookieSite {
    /// The host of the site.
    pub edge: Edge,
    /// The daemon of the host.
    pub daemon: Daemon,
    _replies: Ebpf,
}

/// What a listener asks of its connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asks {
    /// Bytes of the receive buffer, `SO_RCVBUF`.
    pub buffer: Option<usize>,
    /// The largest segment, `TCP_MAXSEG`.
    pub segment: Option<u32>,
    /// Whether other listeners may share the port, `SO_REUSEPORT`.
    pub shared: bool,
}

/// Both ends of a connection, as `ss` has them.
#[derive(Debug)]
pub struct Ends {
    /// The end at the service.
    pub server: String,
    /// The end at the client.
    pub client: String,
}

impl CookieSite {
    /// Starts a daemon, with clients at these addresses.
    pub fn new(clients: &[&str]) -> Self {
        let edge = Edge::new();
        for client in clients {
            edge.wire.add_source(client.parse::<IpAddr>().expect("an address"));
        }
        let replies = edge.wire.receive_replies();
        for name in ["tcp_syncookies", "tcp_timestamps"] {
            run(edge.wire.on_edge("sysctl").args(["-w", &format!("net.ipv4.{name}=2")]));
        }
        let daemon = edge.start(POLICY);
        Self { edge, daemon, _replies: replies }
    }

    /// Listens at a port with these options.
    pub fn listen(&self, server: &str, port: u16, asks: Asks) -> TcpListener {
        let address = at(server, port);
        self.edge.wire.as_edge(|| {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
            socket.set_reuse_address(true).expect("SO_REUSEADDR");
            socket.set_reuse_port(asks.shared).expect("SO_REUSEPORT");
            if let Some(buffer) = asks.buffer {
                socket.set_recv_buffer_size(buffer).expect("SO_RCVBUF");
            }
            if let Some(segment) = asks.segment {
                socket.set_tcp_mss(segment).expect("TCP_MAXSEG");
            }
            socket.bind(&address.into()).expect("bind");
            socket.listen(64).expect("listen");
            socket.into()
        })
    }

    /// Spends the one SYN that is within the threshold.
    pub fn begin(&self, server: &str) {
        let listener = self.listen(server, BY_COOKIE, Asks::default());
        self.edge.wire.as_net(|| connect(server, BY_COOKIE));
        drop(listener);
    }

    /// Connects a client, and says whether a cookie was sent for it.
    pub fn connect(&self, server: &str, port: u16) -> (TcpStream, bool) {
        let before = self.cookies_sent();
        let client = self.edge.wire.as_net(|| connect(server, port));
        (client, self.cookies_sent() > before)
    }

    /// Cookies sent so far.
    pub fn cookies_sent(&self) -> u64 {
        self.edge.json(&["stats"])["replies_by_reason"]["cookie_sent"].as_u64().expect("a count")
    }

    /// What `ss` says of both ends of a client's connection.
    pub fn ends(&self, client: &TcpStream) -> Ends {
        let port = format!(":{}", client.local_addr().expect("an address").port());
        let words = |mut ss: std::process::Command, end| {
            let output = run(ss.args(["-tinHO", end, &port]));
            String::from_utf8(output.stdout).expect("text")
        };
        Ends {
            server: words(self.edge.wire.on_edge("ss"), "dport"),
            client: words(self.edge.wire.in_net("ss"), "sport"),
        }
    }
}

impl Ends {
    /// What stands behind `begins` in the word of an end that begins so.
    pub fn word<'a>(end: &'a str, begins: &str) -> Option<&'a str> {
        end.split_whitespace().find_map(|word| word.strip_prefix(begins))
    }

    /// The window scales that an end sends and receives with.
    pub fn scales(end: &str) -> Option<(&str, &str)> {
        Self::word(end, "wscale:")?.split_once(',')
    }
}

/// An address at a port.
pub fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), port)
}

fn connect(server: &str, port: u16) -> TcpStream {
    TcpStream::connect_timeout(&at(server, port), Duration::from_secs(5)).expect("connect")
}
