//! A front process that somebody has taken over: gives up its rights as `ratelimit front` does, then tries what an intruder would, and says what came
//! of each attempt on standard error, a line each.
//!
//! Arguments: the control socket, a file that only root may read, a directory that everybody may write, and the daemon's process.

use std::{fs, io, net::TcpListener, os::unix::net::UnixStream, process::Command};

use ratelimit_user::daemon::front::FrontProcess;
use rustix::process::Pid;
use socket2::{Domain, Protocol, Socket, Type};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [control, secret, writable, daemon] = &words[..] else { panic!("four arguments") };
    let Err(failure) = FrontProcess::confined(None, false).map(drop) else {
        return attempts(control, secret, writable, daemon);
    };
    panic!("{failure}");
}

fn attempts(control: &str, secret: &str, writable: &str, daemon: &str) {
    let pid: i32 = daemon.parse().expect("a process");
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
    say("run a program", Command::new("/bin/true").status());
    say("become root", rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).map_err(io::Error::from));
    say("bind a TCP port", TcpListener::bind("127.0.0.1:0"));
    // What an honest front has to do.
    say("resolve a name", fs::read("/etc/hosts"));
    say("open a UDP socket", Socket::new(Domain::IPV4, Type::DGRAM, None));
    say("start a thread", std::thread::Builder::new().spawn(|| ()).map(|thread| thread.join().is_ok()));
}

fn say<T>(what: &str, done: io::Result<T>) {
    match done {
        Ok(_) => eprintln!("{what}: done"),
        Err(error) => eprintln!("{what}: refused ({error})"),
    }
}
