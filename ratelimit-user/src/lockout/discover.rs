//! Finds the addresses that must not be cut off: clients of sshd, and gateways. All files are read below one directory, which is
//! `/proc` except in tests.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufRead as _, BufReader},
    net::IpAddr,
    path::Path,
};

use super::{
    LockoutRole, Vital, routes,
    sockets::{self, TcpSocket, TcpState},
};

/// The port that counts as sshd's even if no sshd is found listening: systemd may listen in its place.
pub const SSH_PORT: u16 = 22;
/// Names of programs that serve SSH. `sshd-session` has the connections since OpenSSH 9.8.
const SSH_SERVERS: [&str; 3] = ["sshd", "sshd-session", "dropbear"];
/// The largest number of sessions that are remembered: nobody looks after more by hand, and an attacker could open any number.
const MAX_SESSIONS: usize = 4096;

/// Returns the ports of sockets that SSH servers have open, as far as this process may read their open files. If sockets cannot be read, there are none.
pub fn ssh_ports(proc: &Path) -> BTreeSet<u16> {
    let servers = ssh_sockets(proc);
    let mut ports = BTreeSet::new();
    if servers.is_empty() {
        return ports;
    }
    let _as_far_as_read = each_socket(proc, |socket| {
        if servers.contains(&socket.inode) && ports.len() < MAX_SESSIONS {
            ports.insert(socket.local_port);
        }
    });
    ports
}

/// Returns all addresses that must not be cut off, except that of the operator who gives an order. `own` are this host's addresses, `ssh_ports` the ports of
/// SSH servers that another process has found.
pub fn discover(
    proc: &Path,
    own: Vec<(IpAddr, String)>,
    ssh_ports: &BTreeSet<u16>,
) -> io::Result<Vec<Vital>> {
    let mut vital = Vec::new();
    for (address, local, port) in sessions(proc, ssh_ports)? {
        vital.push(Vital { address, role: LockoutRole::SshSession { local, port } });
    }
    // Loopback addresses never occur on a wire, and blocking 127.0.0.0/8 on real interfaces is good practice.
    let own = own.into_iter().filter(|(address, _)| !address.is_loopback());
    vital.extend(own.map(|(address, interface)| Vital { address, role: LockoutRole::Own { interface } }));
    let mut gateways = BTreeSet::new();
    each_line(&proc.join("net/route"), |line| gateways.extend(routes::gateway_v4(line)))?;
    each_line(&proc.join("net/ipv6_route"), |line| gateways.extend(routes::gateway_v6(line)))?;
    vital.extend(gateways.into_iter().map(|address| Vital { address, role: LockoutRole::Gateway }));
    Ok(vital)
}

/// Returns the far ends of connections to sshd, with the local address and port of each.
fn sessions(proc: &Path, ssh_ports: &BTreeSet<u16>) -> io::Result<BTreeSet<(IpAddr, IpAddr, u16)>> {
    let servers = ssh_sockets(proc);
    let mut ports = ssh_ports.clone();
    ports.insert(SSH_PORT);
    let mut found = BTreeSet::new();
    // The kernel walks its whole table of connections for each look, which takes some milliseconds. A second look is needed only if
    // the first one found ports that it did not know at its beginning.
    loop {
        let known = ports.len();
        each_socket(proc, |socket| {
            let server = servers.contains(&socket.inode);
            match socket.state {
                TcpState::Listening if server => _ = ports.insert(socket.local_port),
                TcpState::Listening => {}
                TcpState::Established => {
                    let ssh = server || ports.contains(&socket.local_port);
                    if ssh && !socket.peer.is_loopback() && found.len() < MAX_SESSIONS {
                        found.insert((socket.peer, socket.local, socket.local_port));
                    }
                }
            }
        })?;
        if ports.len() == known {
            return Ok(found);
        }
    }
}

fn each_socket(proc: &Path, mut each: impl FnMut(TcpSocket)) -> io::Result<()> {
    for file in ["net/tcp", "net/tcp6"] {
        each_line(&proc.join(file), |line| sockets::parse_line(line).into_iter().for_each(&mut each))?;
    }
    Ok(())
}

/// Returns the inodes of the sockets that SSH servers have open. Processes come and go during the search: files that cannot be
/// read belong to another user or are gone.
fn ssh_sockets(proc: &Path) -> BTreeSet<u64> {
    let mut inodes = BTreeSet::new();
    for process in fs::read_dir(proc).into_iter().flatten().flatten() {
        let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        if !SSH_SERVERS.contains(&name.trim_end()) {
            continue;
        }
        let open = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let targets = open.filter_map(|file| fs::read_link(file.path()).ok());
        inodes.extend(targets.filter_map(|target| socket_inode(target.to_str()?)));
    }
    inodes
}

/// Returns the inode in the target of a link such as `socket:[4711]`.
fn socket_inode(target: &str) -> Option<u64> {
    target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Calls `each` for every line of a file, without holding the file in memory: a busy host has hundreds of thousands of lines. A missing file has none: the
/// kernel was built without its protocol.
fn each_line(path: &Path, mut each: impl FnMut(&str)) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for line in BufReader::new(file).lines() {
        each(&line?);
    }
    Ok(())
}
