//! Clients over UDP that a host knows: their words in its memory, their sockets, and a server that echoes.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aya::maps::{Array, Map, MapData};
use ratelimit_common::{
    abi::{Policy, SourceKey, names},
    limit::{
        clients::{self, Client, WAYS},
        gcra, prefilter,
    },
};
use ratelimit_user::dataplane::{
    pin::{Layout, PinDir},
    probe,
    remains::Remains,
};
use rustix::net::sockopt;

/// How long the clients wait for answers to what they sent last.
const PATIENCE: Duration = Duration::from_millis(300);
/// How often the clients look at the clock and at their sockets.
const GLANCE: Duration = Duration::from_millis(1);
/// The echo's queue holds what a total lets through at once: what a full queue loses would be taken for what the limiter dropped.
const RECEIVE_BUFFER: usize = 16 << 20;
/// Bytes of the stack on which the policy is read.
const STACK: usize = 16 << 20;

/// Writes clients of the first service into the pinned memory of a host, each with what it is served on average in packets each second. The filter has them
/// once the daemon has started again.
pub fn remember(pins: &PinDir, clients: impl IntoIterator<Item = (Ipv4Addr, f64)>) {
    let remains = Remains::find(pins).expect("read the pins").expect("maps of this build");
    let policy = in_force(&remains);
    let path = pins.map(Layout::current(remains.table_capacity()), names::CLIENTS);
    let map = Map::Array(MapData::from_pin(path).expect("open the memory of clients"));
    let mut sets: Array<_, [u64; WAYS]> = Array::try_from(map).expect("the memory of clients");
    for (source, per_sec) in clients {
        let (set, word) = known_client(&policy, source, per_sec);
        let mut words = sets.get(&set, 0).expect("read a set");
        // A set that is full keeps what it has.
        if let Some(free) = words.iter_mut().find(|word| **word == 0) {
            *free = word;
            sets.set(set, words, 0).expect("write a set");
        }
    }
}

/// The policy in force. It is copied a few times while it is read, which is more than the stack of a test has.
fn in_force(remains: &Remains) -> Box<Policy> {
    let read = || remains.policy().expect("read the policy").expect("a policy in force");
    thread::scope(|scope| {
        let reader = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, read);
        reader.expect("start a thread").join().expect("read the policy")
    })
}

/// The set and the word of a client of the first service that is known, and was served a moment ago.
fn known_client(policy: &Policy, source: Ipv4Addr, per_sec: f64) -> (u32, u64) {
    let secret = policy.prefilter.secret;
    let hash = prefilter::hash(SourceKey::from_v4(u32::from_ne_bytes(source.octets())), secret);
    let hash = prefilter::group_hash(hash, policy.services[0].clients_group, secret);
    let now = clients::step(hash, gcra::time_q8(probe::now_ns()));
    let step = |ago: u64| now.wrapping_sub(ago) & 0xffff;
    // One step with as much as all others of the time constant would have had, and three with next to nothing.
    let served = per_sec * clients::AVERAGE_OF_A_PACKET_PER_SEC * 2.0;
    let random = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = Client::first(clients::tag(hash), step(3), served as u64, random);
    let client = [2, 1, 0].into_iter().fold(first, |client, ago| client.meet(step(ago), 1, random));
    (clients::set_index(hash), client.0)
}

/// A server that returns every datagram. It ends with the value.
#[derive(Debug)]
pub struct UdpEcho(Arc<AtomicBool>);

impl UdpEcho {
    /// Serves these addresses, with a thread for each, in the namespace and on the CPU of the calling thread.
    pub fn start(addresses: &[SocketAddr]) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        for address in addresses {
            let socket = UdpSocket::bind(address).unwrap_or_else(|error| panic!("bind {address}: {error}"));
            sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).expect("a longer queue");
            socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let ended = Arc::clone(&ended);
            thread::spawn(move || {
                let mut buffer = [0; 64];
                while !ended.load(Ordering::Relaxed) {
                    if let Ok((len, from)) = socket.recv_from(&mut buffer) {
                        // Forged sources have no route.
                        let _sent = socket.send_to(&buffer[..len], from);
                    }
                }
            });
        }
        Self(ended)
    }
}

impl Drop for UdpEcho {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Real clients, each with a socket and an address of its own.
#[derive(Debug)]
pub struct UdpClients(Vec<UdpSocket>);

/// How many datagrams were sent to each port, and how many of them came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Echoed {
    /// Datagrams that were sent to each port.
    pub sent: u64,
    /// Datagrams that came back from each port.
    pub answered: [u64; 2],
}

impl UdpClients {
    /// Opens a socket for each address, in the namespace of the calling thread.
    pub fn bind(addresses: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        let bind = |address: Ipv4Addr| {
            let socket =
                UdpSocket::bind((address, 0)).unwrap_or_else(|error| panic!("bind {address}: {error}"));
            socket.set_nonblocking(true).expect("a socket that does not block");
            socket
        };
        Self(addresses.into_iter().map(bind).collect())
    }

    /// Sends so many datagrams a second from each client, to both ports at once, and counts what comes back.
    pub fn ask(&self, server: IpAddr, ports: [u16; 2], per_sec: u32, lasts: Duration) -> Echoed {
        let mut echoed = Echoed::default();
        let gap = Duration::from_secs(1) / per_sec / self.0.len() as u32;
        let all = lasts.as_nanos() / gap.as_nanos();
        let start = Instant::now();
        loop {
            let due = (start.elapsed().as_nanos() / gap.as_nanos()).min(all) as u64;
            while echoed.sent < due {
                let client = &self.0[echoed.sent as usize % self.0.len()];
                for port in ports {
                    // What is not sent is not answered either, from one port as from the other.
                    let _sent = client.send_to(b"are you there?", (server, port));
                }
                echoed.sent += 1;
            }
            self.count(ports, &mut echoed.answered);
            let is_over = echoed.answered == [echoed.sent; 2] || start.elapsed() > lasts + PATIENCE;
            if u128::from(echoed.sent) == all && is_over {
                return echoed;
            }
            thread::sleep(GLANCE);
        }
    }

    fn count(&self, ports: [u16; 2], answered: &mut [u64; 2]) {
        let mut buffer = [0; 64];
        for client in &self.0 {
            while let Ok((_, from)) = client.recv_from(&mut buffer) {
                for (count, port) in answered.iter_mut().zip(ports) {
                    *count += u64::from(from.port() == port);
                }
            }
        }
    }
}
