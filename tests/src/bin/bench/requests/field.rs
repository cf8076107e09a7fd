//! Where a comparison takes place: a core for the server, another one for the client, a directory, and those that can take part.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use ratelimit_tests::redis::{free_port, redis_command};

use super::{
    entrant::not_measured,
    policy::{self, PACKETS},
    server::{Place, Server, is_installed},
};

/// What each of many users may have, the same at every contestant that takes it. So much that nobody is refused within a run, and so slowly given
/// back that everybody has to remember every user.
pub(super) const BURST: &str = "1000";
pub(super) const COUNT: &str = "1000";
pub(super) const PERIOD_S: &str = "3600";
/// What the one user of gRPC calls may have in a second.
pub(super) const BUSY_PER_SECOND: u64 = 1_000_000;

/// APIs of the policy that the limiter is started with.
pub(super) const CALM_API: &str = "bench";
pub(super) const BUSY_API: &str = "busy";

pub(super) struct Field {
    pub(super) server_cpu: usize,
    pub(super) client_cpu: usize,
    limiter: PathBuf,
    dir: Directory,
    /// What could not be measured, and why.
    pub(super) notes: Vec<String>,
}

/// A server and the port that is asked.
pub(super) struct Running {
    pub(super) server: Server,
    pub(super) port: u16,
}

/// A protocol that several servers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Resp,
    Http,
    Grpc,
}

impl Protocol {
    /// The word for it in a policy.
    fn listener(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::Http => "http",
            Self::Grpc => "grpc",
        }
    }

    /// The word for it on throttlecrab's command line.
    fn transport(self) -> &'static str {
        match self {
            Self::Resp => "redis",
            Self::Http => "http",
            Self::Grpc => "grpc",
        }
    }
}

impl Field {
    pub(super) fn new(limiter: PathBuf, cpus: usize) -> Result<Self> {
        ensure!(
            cpus >= 2,
            "--requests takes two CPUs, one for servers and one for clients; this machine has {cpus}"
        );
        let dir = Directory::new()?;
        Ok(Self { server_cpu: cpus - 1, client_cpu: 0, limiter, dir, notes: Vec::new() })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir.0
    }

    /// A contestant, or a note why it does not take part.
    pub(super) fn admit<T>(&mut self, name: &str, start: impl FnOnce(&Self) -> Result<T>) -> Option<T> {
        start(self).map_err(|error| self.notes.push(not_measured(name, &error))).ok()
    }

    /// The limiter's service, with no kernel program.
    pub(super) fn limiter(&self, protocol: Protocol, redis: Option<&str>) -> Result<Running> {
        let port = free_port();
        let policy = self.dir().join(format!("policy-{port}.toml"));
        let text = policy_text(protocol, port);
        fs::write(&policy, text).with_context(|| format!("cannot write {}", policy.display()))?;
        let mut words = vec!["serve".into(), "--policy".into(), policy.display().to_string()];
        words.extend(redis.into_iter().flat_map(|url| ["--redis".into(), url.to_owned()]));
        self.run(&self.limiter.display().to_string(), &words, port)
    }

    /// Redis as it is, and without a disk.
    pub(super) fn redis(&self) -> Result<Running> {
        self.redis_on(self.server_cpu)
    }

    /// Redis as the store of a limiter. In production the store is on another host, so it is not on the limiter's core here.
    pub(super) fn store(&self) -> Result<Running> {
        self.redis_on(self.client_cpu)
    }

    fn redis_on(&self, cpu: usize) -> Result<Running> {
        let port = free_port();
        let line = format!("--port {port} --bind 127.0.0.1 --appendonly no --save");
        let mut words: Vec<String> = line.split(' ').map(String::from).collect();
        words.push(String::new());
        let running = self.run_on(cpu, "redis-server", &words, port)?;
        // The port answers before it takes commands.
        redis_command(port, &["PING"]);
        Ok(running)
    }

    pub(super) fn throttlecrab(&self, protocol: Protocol) -> Result<Running> {
        let (port, transport) = (free_port(), protocol.transport());
        let line =
            format!("--{transport} --{transport}-host 127.0.0.1 --{transport}-port {port} --log-level error");
        let words: Vec<String> = line.split(' ').map(String::from).collect();
        self.run("throttlecrab-server", &words, port)
    }

    /// One process of nginx that answers with 43 bytes from memory, with `limit_req` or without it.
    pub(super) fn nginx(&self, with_limit: bool) -> Result<Running> {
        let port = free_port();
        let dir = self.dir().join(format!("nginx-{port}"));
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let configuration = dir.join("nginx.conf");
        fs::write(&configuration, nginx_text(port, with_limit))?;
        let line = format!("-p {0} -e {0}/error.log -c {1}", dir.display(), configuration.display());
        let words: Vec<String> = line.split(' ').map(String::from).collect();
        self.run("nginx", &words, port)
    }

    pub(super) fn limitador(&self) -> Result<Running> {
        let port = free_port();
        self.run("limitador-rls", &[format!("127.0.0.1:{port}")], port)
    }

    fn run(&self, program: &str, words: &[String], port: u16) -> Result<Running> {
        self.run_on(self.server_cpu, program, words, port)
    }

    fn run_on(&self, cpu: usize, program: &str, words: &[String], port: u16) -> Result<Running> {
        ensure!(program.contains('/') || is_installed(program), "{program} is not installed");
        let place = Place { cpu, dir: self.dir() };
        Ok(Running { server: Server::start(place, program, words, &[port])?, port })
    }
}

fn policy_text(protocol: Protocol, port: u16) -> String {
    let listen = format!("[listen]\n{} = \"127.0.0.1:{port}\"\n", protocol.listener());
    let many = policy::api(CALM_API, &format!("{COUNT}/hour burst {BURST}"), "token-bucket");
    let busy = policy::api(BUSY_API, &format!("{BUSY_PER_SECOND}/s burst {BUSY_PER_SECOND}"), "token-bucket");
    [PACKETS, &listen, &many, &busy].concat()
}

/// `return` would answer before limits are looked at; a file would cost system calls. One process is the whole server, so that the server ends with the value.
fn nginx_text(port: u16, with_limit: bool) -> String {
    let limit =
        if with_limit { format!("limit_req zone=users burst={BURST} nodelay;") } else { String::new() };
    let paths =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path tmp;"));
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid nginx.pid;\nevents {{ worker_connections 1024; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 1000000000;\n  {}\n  \
           limit_req_zone $arg_user zone=users:64m rate=17r/m;\n  \
           server {{ listen 127.0.0.1:{port}; location / {{ {limit} empty_gif; }} }}\n}}\n",
        paths.join(" ")
    )
}

/// A directory that goes with the run.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("ratelimit-requests-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_user::config;

    use super::*;

    #[test]
    fn the_policy_of_every_protocol_is_understood_and_listens_there() {
        for protocol in [Protocol::Resp, Protocol::Http, Protocol::Grpc] {
            let policy = config::parse(&policy_text(protocol, 8080), "policy.toml").unwrap().policy;
            let listen = policy.listen();
            let ports = [&listen.resp, &listen.http, &listen.grpc].map(Vec::len);
            let expected =
                [Protocol::Resp, Protocol::Http, Protocol::Grpc].map(|one| usize::from(one == protocol));
            assert_eq!(ports, expected, "{protocol:?}");
            assert_eq!(policy.requests().apis.len(), 2);
        }
    }
}
