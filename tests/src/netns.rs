//! Two network namespaces with a wire between them.

use std::{
    net::IpAddr,
    os::fd::AsFd as _,
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use aya::{
    Ebpf, include_bytes_aligned,
    programs::{Xdp, xdp::XdpMode},
};

/// The kernel programs of the benchmark.
static RIG: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/rig/ratelimit-rig"));

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The guarded interface, in the edge namespace.
pub const EDGE: &str = "edge0";
/// The other end of the wire, in the net namespace.
pub const NET: &str = "net0";
/// The edge host's IPv4 address.
pub const EDGE_V4: &str = "10.99.0.1";
/// The edge host's IPv6 address.
pub const EDGE_V6: &str = "fd00:99::1";

/// An edge host and the network in front of it.
#[derive(Debug)]
pub struct Wire {
    edge: String,
    net: String,
}

impl Wire {
    /// Makes both namespaces and the veth pair, with 10.99.0.1/16 and fd00:99::1/32 on the edge.
    pub fn new() -> Self {
        let unique = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let wire = Self { edge: format!("rlt-edge-{unique}"), net: format!("rlt-net-{unique}") };
        ip(&["netns", "add", &wire.edge]);
        ip(&["netns", "add", &wire.net]);
        wire.connect();
        wire
    }

    /// Takes the wire away and puts a new one in its place, with the same names and the edge's addresses.
    pub fn replace(&self) {
        self.cut();
        self.connect();
    }

    /// Takes the wire away.
    pub fn cut(&self) {
        ip(&["-n", &self.edge, "link", "del", EDGE]);
    }

    /// Puts a wire where there is none. Returns how long the edge's end was there before anything could arrive over it.
    pub fn add_wire(&self) -> Duration {
        self.connect()
    }

    fn connect(&self) -> Duration {
        ip(&["-n", &self.edge, "link", "add", EDGE, "type", "veth", "peer", "name", NET, "netns", &self.net]);
        let made = Instant::now();
        self.address(&self.edge, EDGE, &format!("{EDGE_V4}/16"));
        self.address(&self.edge, EDGE, &format!("{EDGE_V6}/32"));
        let mut bare = Duration::ZERO;
        for (namespace, interface) in [(&self.edge, EDGE), (&self.net, NET)] {
            ip(&["-n", namespace, "link", "set", "lo", "up"]);
            bare = made.elapsed();
            ip(&["-n", namespace, "link", "set", interface, "up"]);
        }
        bare
    }

    /// Gives the network side another source address.
    pub fn add_source(&self, address: IpAddr) {
        let prefix = if address.is_ipv4() { 16 } else { 32 };
        self.address(&self.net, NET, &format!("{address}/{prefix}"));
    }

    /// Runs a function on the edge host, in a thread of its own.
    pub fn as_edge<R: Send>(&self, what: impl FnOnce() -> R + Send) -> R {
        as_inhabitant(&self.edge, what)
    }

    /// Runs a function in the network, in a thread of its own.
    pub fn as_net<R: Send>(&self, what: impl FnOnce() -> R + Send) -> R {
        as_inhabitant(&self.net, what)
    }

    /// Lets the network see frames that a program on the edge sends back (XDP_TX): veth delivers those only to an end that runs a
    /// program itself. Lasts as long as the value.
    pub fn receive_replies(&self) -> Ebpf {
        self.as_net(|| {
            let mut rig = Ebpf::load(RIG).expect("load the rig");
            let pass: &mut Xdp =
                rig.program_mut("pass").expect("a program").try_into().expect("an XDP program");
            pass.load().expect("load a program that passes everything");
            pass.attach(NET, XdpMode::Driver).expect("attach it");
            rig
        })
    }

    /// The file that stands for the network's namespace.
    pub fn net_file(&self) -> String {
        format!("/run/netns/{}", self.net)
    }

    /// A command that runs on the edge host.
    pub fn on_edge(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        inside(&self.edge, program)
    }

    /// A command that runs in the network.
    pub fn in_net(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        inside(&self.net, program)
    }

    fn address(&self, namespace: &str, interface: &str, address: &str) {
        let mut words = vec!["-n", namespace, "address", "add", address, "dev", interface];
        if address.contains(':') {
            // Duplicate address detection would make it unusable for a second or two.
            words.push("nodad");
        }
        ip(&words);
    }
}

impl Default for Wire {
    fn default() -> Self {
        Self::new()
    }
}

/// The name of the wire to the host behind, at both ends.
const BEHIND: &str = "behind0";
/// The IPv4 address of the host behind.
pub const BEHIND_V4: &str = "10.98.0.2";
/// The IPv6 address of the host behind.
pub const BEHIND_V6: &str = "fd00:98::2";

/// A host behind the edge host, in a third namespace: the edge forwards to it, and the network has routes to it.
#[derive(Debug)]
pub struct HostBehind {
    namespace: String,
}

impl HostBehind {
    /// Puts a host behind the edge of a wire, and makes the edge forward.
    pub fn new(wire: &Wire) -> Self {
        let behind = Self { namespace: wire.edge.replace("edge", "behind") };
        let namespace = &behind.namespace;
        ip(&["netns", "add", namespace]);
        ip(&[
            "-n", &wire.edge, "link", "add", BEHIND, "type", "veth", "peer", "name", BEHIND, "netns",
            namespace,
        ]);
        wire.address(&wire.edge, BEHIND, "10.98.0.1/24");
        wire.address(&wire.edge, BEHIND, "fd00:98::1/64");
        wire.address(namespace, BEHIND, &format!("{BEHIND_V4}/24"));
        wire.address(namespace, BEHIND, &format!("{BEHIND_V6}/64"));
        for at in [&wire.edge, namespace] {
            ip(&["-n", at, "link", "set", BEHIND, "up"]);
        }
        for (at, network, gateway) in [
            (namespace, "default", "10.98.0.1"),
            (namespace, "default", "fd00:98::1"),
            (&wire.net, "10.98.0.0/24", EDGE_V4),
            (&wire.net, "fd00:98::/64", EDGE_V6),
        ] {
            ip(&["-n", at, "route", "add", network, "via", gateway]);
        }
        for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            run(wire.on_edge("sysctl").args(["-w", setting]));
        }
        behind
    }

    /// Runs a function on this host, in a thread of its own.
    pub fn as_host<R: Send>(&self, what: impl FnOnce() -> R + Send) -> R {
        as_inhabitant(&self.namespace, what)
    }
}

impl Drop for HostBehind {
    fn drop(&mut self) {
        let _gone = Command::new("ip").args(["netns", "del", &self.namespace]).status();
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for namespace in [&self.edge, &self.net] {
            let _gone = Command::new("ip").args(["netns", "del", namespace]).status();
        }
    }
}

/// nsenter rather than `ip netns exec`, which would also replace /sys and with it every BPF file system below.
fn inside(namespace: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{namespace}")).arg(program);
    command
}

/// Sockets belong to the namespace that their thread was in when it made them.
fn as_inhabitant<R: Send>(namespace: &str, what: impl FnOnce() -> R + Send) -> R {
    let path = format!("/run/netns/{namespace}");
    let enter_and_run = || {
        enter(&path);
        what()
    };
    std::thread::scope(|scope| scope.spawn(enter_and_run).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Moves this thread into the network namespace that a file stands for.
pub fn enter(path: &str) {
    let namespace = std::fs::File::open(path).expect("open the namespace");
    let kind = Some(rustix::thread::LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(namespace.as_fd(), kind).expect("enter the namespace");
}

fn ip(words: &[&str]) {
    run(Command::new("ip").args(words));
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} did not start: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed; these tests need root, iproute2 and util-linux: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
