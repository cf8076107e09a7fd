//! A front process that somebody has taken over: gives up its rights as `ratelimit front` does, then tries what an intruder would, and says what came
//! of each attempt on standard error, a line each.
//!
//! Arguments: the control socket, a file that only root may read, a directory that everybody may write, the daemon's process, the abstract name of a unix
//! socket and the address of a TCP socket of another process, and the address of a server that answers datagrams.
#![expect(unsafe_code, reason = "an intruder makes system calls that nobody wraps")]

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr as IpSocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixStream},
    },
    process::Command,
    time::Duration,
};

use nix::libc;
use ratelimit_user::daemon::front::FrontProcess;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use socket2::{Domain, Protocol, Socket, Type};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [control, secret, writable, daemon, abstract_name, tcp, names] = &words[..] else {
        panic!("seven arguments")
    };
    let Err(failure) = FrontProcess::confined(None, false).map(drop) else {
        attempts(control, secret, writable, daemon);
        connections(abstract_name, tcp);
        return necessities(names.parse().expect("an address"));
    };
    panic!("{failure}");
}

fn attempts(control: &str, secret: &str, writable: &str, daemon: &str) {
    let pid: i32 = daemon.parse().expect("a process");
    let own = std::process::id() as i32;
    let daemon = Pid::from_raw(pid).expect("a process");
    say("list BPF programs", aya::programs::loaded_programs().next().transpose().map_err(io::Error::other));
    say("open a packet socket", Socket::new(Domain::PACKET, Type::RAW, None));
    say("open a raw socket", Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)));
    say("open a netlink socket", Socket::new(Domain::from(16), Type::RAW, None));
    say("connect to the control socket", UnixStream::connect(control));
    say("read a secret", fs::read(secret));
    say("read users", fs::read("/etc/passwd"));
    say("list the root directory", fs::read_dir("/").map(drop));
    say("write a file", fs::write(format!("{writable}/written"), "x"));
    say("read the daemon's memory", fs::File::open(format!("/proc/{pid}/mem")));
    say("read the daemon's environment", fs::read(format!("/proc/{pid}/environ")));
    say("signal the daemon", rustix::process::test_kill_process(daemon).map_err(io::Error::from));
    // Signal 0 asks whether one could be sent.
    say("signal a thread of the daemon", call(libc::SYS_tgkill, [pid.into(), pid.into(), 0]));
    say("signal a thread of its own", call(libc::SYS_tgkill, [own.into(), own.into(), 0]));
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    say("change limits of the daemon", prlimit(Some(daemon), Resource::Core, none).map_err(io::Error::from));
    say("change limits of its own", prlimit(None, Resource::Core, none).map_err(io::Error::from));
    let kill = libc::SIGKILL.into();
    say("have a file signal the daemon", call(libc::SYS_fcntl, [0, libc::F_SETOWN.into(), pid.into()]));
    say("choose what a file signals", call(libc::SYS_fcntl, [0, F_SETSIG, kill]));
    let at = std::ptr::from_ref(&pid) as i64;
    say("have a socket signal the daemon", call(libc::SYS_ioctl, [0, FIOSETOWN, at]));
    say("run a program", Command::new("/bin/true").status());
    say("become root", rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).map_err(io::Error::from));
    say("bind a TCP port", TcpListener::bind("127.0.0.1:0"));
    say("bind a UDP port", bind_udp());
}

/// Takes a UDP port. A `bind` that says it has succeeded is not enough.
fn bind_udp() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    match socket.local_addr()?.port() {
        0 => Err(io::Error::other("bind said that it had succeeded, and the socket has no port")),
        _ => Ok(()),
    }
}

/// Does what an honest front has to do.
fn necessities(names: IpSocketAddr) {
    say("read the file of hosts", fs::read("/etc/hosts"));
    say("ask a server of names", ask_names(names));
    say("open a UDP socket", Socket::new(Domain::IPV4, Type::DGRAM, None));
    say("start a thread", std::thread::Builder::new().spawn(|| ()).map(|thread| thread.join().is_ok()));
}

/// Asks a server of names as the resolver of musl does, which is in the packages: bound to no address and no port, without `connect`. The suites' own binary
/// has another resolver.
fn ask_names(server: IpSocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    socket.send_to(b"where is the store?", server)?;
    let (_length, from) = socket.recv_from(&mut [0; 64])?;
    if from == server { Ok(()) } else { Err(io::Error::other(format!("{from} answered, and not {server}"))) }
}

/// Connections to sockets of other processes, which need no file.
fn connections(abstract_name: &str, tcp: &str) {
    let name = SocketAddr::from_abstract_name(abstract_name).expect("a short name");
    say("connect to an abstract socket", UnixStream::connect_addr(&name));
    // An honest front connects to the store and to servers of webhooks, wherever they are.
    say("connect to a TCP port", TcpStream::connect(tcp));
}

/// `F_SETSIG` of `fcntl.h` and `FIOSETOWN` of `asm-generic/sockios.h`.
const F_SETSIG: i64 = 10;
const FIOSETOWN: i64 = 0x8901;

/// A system call, as whoever has taken over a process makes it.
fn call(number: i64, [first, second, third]: [i64; 3]) -> io::Result<i64> {
    // SAFETY: signal 0 does nothing, the others change who is signalled for a descriptor; the one address that is passed on is that of a number that
    // outlives the call.
    match unsafe { libc::syscall(number, first, second, third) } {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

fn say<T>(what: &str, done: io::Result<T>) {
    match done {
        Ok(_) => eprintln!("{what}: done"),
        Err(error) => eprintln!("{what}: refused ({error})"),
    }
}
