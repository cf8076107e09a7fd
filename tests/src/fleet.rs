//! Several edge hosts with daemons that share a store, floods against them, and what their receivers got.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::Child,
    thread,
    time::{Duration, Instant},
};

use crate::{
    daemon::{Daemon, Edge},
    netns::{EDGE, EDGE_V4},
    redis::wait_for,
    traffic::{Sink, edge_with_sources, flood},
};

/// The address that belongs to the user.
pub const SOURCE: &str = "10.99.0.66";

/// A limit of a user, as numbers.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Units per second that the limit admits.
    pub rate: f64,
    /// Units that the limit admits at once.
    pub burst: f64,
}

/// Hosts of one cluster.
#[derive(Debug)]
pub struct Fleet {
    /// All hosts, by number.
    pub hosts: Vec<Member>,
}

/// One host of a fleet.
#[derive(Debug)]
pub struct Member {
    /// The host's wire and directories.
    pub edge: Edge,
    /// The host's daemon, while one runs.
    pub daemon: Option<Daemon>,
    /// The receiver behind the limiter.
    pub sink: Sink,
}

/// What the receivers had got at a moment that lies between two.
#[derive(Clone, Debug)]
pub struct Sample {
    not_before: Instant,
    not_after: Instant,
    /// Datagrams that each host's receiver had got.
    pub got: Vec<u64>,
}

impl Sample {
    /// Datagrams that the receivers of all hosts had got.
    pub fn total(&self) -> u64 {
        self.got.iter().sum()
    }

    /// The shortest time that can lie between another sample and this one.
    pub fn since(&self, earlier: &Self) -> Duration {
        self.not_before.saturating_duration_since(earlier.not_after)
    }
}

impl Fleet {
    /// Hosts that know each other through a store, each with a user that has this limit. `cluster` is the rest of the `[cluster]` table.
    pub fn start(hosts: usize, network: &str, redis: &str, cluster: &str) -> Self {
        Self::reaching(&[], hosts, network, redis, cluster)
    }

    /// Hosts as [`Fleet::start`] makes them, that also reach these ports, which the URL does not name.
    pub fn reaching(ports: &[u16], hosts: usize, network: &str, redis: &str, cluster: &str) -> Self {
        let member = |number: usize| {
            let edge = edge_with_sources(&[SOURCE]);
            forward(&edge, redis);
            ports.iter().for_each(|port| tunnel(&edge, *port));
            let policy = policy(network, redis, &format!("host = \"edge-{number}\"\n{cluster}"));
            let daemon = edge.start(&policy);
            let sink = Sink::start(&edge, EDGE_V4);
            Member { edge, daemon: Some(daemon), sink }
        };
        let fleet = Self { hosts: (0..hosts).map(member).collect() };
        for host in &fleet.hosts {
            wait_for("a store that answers", || host.status()["store_up"].as_bool().filter(|up| *up));
        }
        fleet
    }

    /// Starts a flood against each of these hosts.
    pub fn flood(&self, hosts: &[usize], pps: u64, seconds: f64) -> Vec<Child> {
        hosts.iter().map(|at| flood(&self.hosts[*at].edge, SOURCE, EDGE_V4, pps, seconds)).collect()
    }

    /// What the receivers have now.
    pub fn sample(&mut self) -> Sample {
        let not_before = Instant::now();
        let got = self.hosts.iter_mut().map(|host| host.sink.counted(SOURCE)).collect();
        Sample { not_before, not_after: Instant::now(), got }
    }

    /// Looks again and again for so long, with something that is done along the way, when its time has come.
    pub fn watch(
        &mut self,
        lasts: Duration,
        mut events: Vec<(Duration, Box<dyn FnMut() + '_>)>,
    ) -> Vec<Sample> {
        let began = Instant::now();
        let mut samples = vec![self.sample()];
        while began.elapsed() < lasts {
            let due = events.iter().position(|(at, _)| began.elapsed() >= *at);
            if let Some(at) = due {
                (events.remove(at).1)();
            }
            // Often enough to see a gap, seldom enough to leave the machine to those who are watched.
            thread::sleep(Duration::from_millis(20));
            samples.push(self.sample());
        }
        samples
    }
}

impl Member {
    /// What the daemon says of the cluster.
    pub fn status(&self) -> serde_json::Value {
        self.edge.json(&["status"])["cluster"].clone()
    }

    /// Starts the host's daemon again.
    pub fn restart(&mut self) {
        let mut command = self.edge.run_command();
        command.args(["--iface", EDGE]);
        self.daemon = Some(Daemon::start(command));
    }
}

/// A policy whose user has the addresses of [`SOURCE`].
pub fn policy(network: &str, redis: &str, cluster: &str) -> String {
    format!(
        "[source]\nladder = false\nlimits = [\"1000000 packets/s\"]\n\
         [[user]]\nname = \"acme\"\nsources = [\"10.99.0.64/26\"]\nnetwork = [\"{network}\"]\n\
         [cluster]\nredis = \"{redis}\"\n{cluster}\n"
    )
}

/// The most that was admitted above the rate in any interval: at most the burst, or the limit was broken. Datagrams wait in queues for a few
/// milliseconds, so what is counted may bunch a little.
pub fn excess(samples: &[Sample], bound: Bound) -> f64 {
    const QUEUES: f64 = 0.03;
    let mut worst = f64::MIN;
    for (at, first) in samples.iter().enumerate() {
        for last in &samples[at..] {
            let longest = last.not_after.duration_since(first.not_before).as_secs_f64() + QUEUES;
            worst = worst.max((last.total() - first.total()) as f64 - bound.rate * longest);
        }
    }
    worst
}

/// Lets a host reach the servers of a URL that listen on the loopback interface of this machine: at the same ports of its own.
fn forward(edge: &Edge, redis: &str) {
    let ports = redis.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ':');
    let ports = ports.filter_map(|piece| piece.parse::<SocketAddr>().ok()).map(|address| address.port());
    ports.for_each(|port| tunnel(edge, port));
}

/// Forwards a port of a host's loopback interface to the same port here. Lasts as long as the process.
pub fn tunnel(edge: &Edge, port: u16) {
    let listener =
        edge.wire.as_edge(|| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("listen on the edge"));
    thread::spawn(move || {
        for inward in listener.incoming().flatten() {
            let Ok(outward) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
            for stream in [&inward, &outward] {
                stream.set_nodelay(true).expect("no delay");
            }
            let copies = [(&inward, &outward), (&outward, &inward)]
                .map(|(from, to)| (from.try_clone().expect("a socket"), to.try_clone().expect("a socket")));
            for (mut from, mut to) in copies {
                thread::spawn(move || {
                    let _closed = io::copy(&mut from, &mut to);
                    let _closed = to.shutdown(std::net::Shutdown::Both);
                    let _closed = from.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
}
