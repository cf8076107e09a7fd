//! Clients that a host knows: their words in its memory, their sockets, and a server that echoes.

use std::{
    io,
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
use ratelimit_ebpf::tables::Tables as _;
use ratelimit_user::dataplane::{
    pin::{Layout, PinDir},
    probe,
    remains::Remains,
};
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};

use crate::memory::Memory;

/// What a client asks, in one packet.
pub const QUESTION: &[u8] = b"are you there?";
/// More than a client asks.
const MOST_BYTES: usize = 4096;
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
        let (hash, word) = known_client(&policy, source, per_sec, probe::now_ns());
        let set = clients::set_index(hash);
        let mut words = sets.get(&set, 0).expect("read a set");
        // A set that is full keeps what it has.
        if let Some(free) = words.iter_mut().find(|word| **word == 0) {
            *free = word;
            sets.set(set, words, 0).expect("write a set");
        }
    }
}

/// Writes clients of the first service into the memory of a host without a kernel, and into the filter.
pub fn remember_in(memory: &Memory, clients: impl IntoIterator<Item = (Ipv4Addr, f64)>) {
    for (source, per_sec) in clients {
        let (hash, word) = known_client(memory.in_force(), source, per_sec, memory.now_ns.get());
        let set = memory.clients(clients::set_index(hash)).expect("a set");
        let free = (0..WAYS).map(|way| memory.client(set, way)).find(|place| memory.load(*place) == 0);
        if let Some(free) = free {
            memory.store(free, word);
        }
        let filter = memory.client_filter(clients::filter_index(hash)).expect("a word of the filter");
        memory.store(filter, memory.load(filter) | clients::filter_bits(hash));
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

/// The hash and the word of a client of the first service that is known, and was served a moment ago.
fn known_client(policy: &Policy, source: Ipv4Addr, per_sec: f64, now_ns: u64) -> (u64, u64) {
    let secret = policy.prefilter.secret;
    let hash = prefilter::hash(SourceKey::from_v4(u32::from_ne_bytes(source.octets())), secret);
    let hash = prefilter::group_hash(hash, policy.services[0].clients_group, secret);
    let now = clients::step(hash, gcra::time_q8(now_ns));
    let step = |ago: u64| now.wrapping_sub(ago) & 0xffff;
    // One step with as much as all others of the time constant would have had, and three with next to nothing.
    let served = per_sec * clients::AVERAGE_OF_A_PACKET_PER_SEC * 2.0;
    let random = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = Client::first(clients::tag(hash), step(3), served as u64, random);
    let client = [2, 1, 0].into_iter().fold(first, |client, ago| client.meet(step(ago), 1, random));
    (hash, client.0)
}

/// What carries the questions of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionCarrier {
    /// UDP, over IPv4 or IPv6.
    Udp,
    /// GRE over IPv4, from raw sockets: kernels may be without tunnels. It has no ports, 0 stands for that.
    Gre,
}

impl QuestionCarrier {
    fn bind(self, address: SocketAddr) -> UdpSocket {
        let socket = match self {
            Self::Udp => UdpSocket::bind(address),
            Self::Gre => Self::raw(address),
        };
        socket.unwrap_or_else(|error| panic!("bind {address} for {self:?}: {error}"))
    }

    /// A raw socket, which sends and receives as one for datagrams does.
    fn raw(address: SocketAddr) -> io::Result<UdpSocket> {
        const GRE: i32 = 47;
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(GRE)))?;
        socket.bind(&address.into())?;
        Ok(socket.into())
    }

    /// The bytes in front of what was sent, as a socket receives it.
    const fn header_len(self) -> usize {
        match self {
            Self::Udp => 0,
            Self::Gre => 20,
        }
    }
}

/// A server that returns every question. It ends with the value.
#[derive(Debug)]
pub struct EchoServer(Arc<AtomicBool>);

impl EchoServer {
    /// Serves these addresses, with a thread for each, in the namespace and on the CPU of the calling thread.
    pub fn start(carrier: QuestionCarrier, addresses: &[SocketAddr]) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        for address in addresses {
            let socket = carrier.bind(*address);
            sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).expect("a longer queue");
            socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let ended = Arc::clone(&ended);
            thread::spawn(move || {
                let mut buffer = [0; MOST_BYTES];
                while !ended.load(Ordering::Relaxed) {
                    if let Ok((len, from)) = socket.recv_from(&mut buffer) {
                        // Forged sources have no route.
                        let _sent = socket.send_to(&buffer[carrier.header_len()..len], from);
                    }
                }
            });
        }
        Self(ended)
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Real clients, each with a socket and an address of its own.
#[derive(Debug)]
pub struct EchoClients(Vec<UdpSocket>);

/// How many questions were sent to each port, and how many of them came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echoed<const PORTS: usize = 2> {
    /// Questions that were sent to each port.
    pub sent: u64,
    /// Questions that came back from each port.
    pub answered: [u64; PORTS],
}

impl EchoClients {
    /// Opens a socket for each address, in the namespace of the calling thread.
    pub fn bind(carrier: QuestionCarrier, addresses: impl IntoIterator<Item = impl Into<IpAddr>>) -> Self {
        let bind = |address: IpAddr| {
            let socket = carrier.bind(SocketAddr::new(address, 0));
            socket.set_nonblocking(true).expect("a socket that does not block");
            socket
        };
        Self(addresses.into_iter().map(|address| bind(address.into())).collect())
    }

    /// Sends a question so many times a second from each client, to all ports at once, and counts what comes back.
    pub fn ask<const PORTS: usize>(
        &self,
        server: IpAddr,
        ports: [u16; PORTS],
        question: &[u8],
        per_sec: u32,
        lasts: Duration,
    ) -> Echoed<PORTS> {
        let mut echoed = Echoed { sent: 0, answered: [0; PORTS] };
        let gap = Duration::from_secs(1) / per_sec / self.0.len() as u32;
        let all = lasts.as_nanos() / gap.as_nanos();
        let start = Instant::now();
        loop {
            let due = (start.elapsed().as_nanos() / gap.as_nanos()).min(all) as u64;
            while echoed.sent < due {
                let client = &self.0[echoed.sent as usize % self.0.len()];
                for port in ports {
                    // What is not sent is not answered either, from one port as from the other.
                    let _sent = client.send_to(question, (server, port));
                }
                echoed.sent += 1;
            }
            self.count(ports, &mut echoed.answered);
            let is_over = echoed.answered == [echoed.sent; PORTS] || start.elapsed() > lasts + PATIENCE;
            if u128::from(echoed.sent) == all && is_over {
                return echoed;
            }
            thread::sleep(GLANCE);
        }
    }

    fn count<const PORTS: usize>(&self, ports: [u16; PORTS], answered: &mut [u64; PORTS]) {
        let mut buffer = [0; MOST_BYTES];
        for client in &self.0 {
            while let Ok((_, from)) = client.recv_from(&mut buffer) {
                for (count, port) in answered.iter_mut().zip(ports) {
                    *count += u64::from(from.port() == port);
                }
            }
        }
    }
}
