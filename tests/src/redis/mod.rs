//! Real redis-server processes that a test starts, stops and breaks: one, with Sentinels, as a cluster, behind a proxy.
//!
//! Every server has a Unix socket and a user of its own for the harness, so that it can be asked whatever a test does to its ports, its
//! passwords, its certificates or its namespace. All of them end with the value that stands for them.

mod certificates;
mod cluster;
mod proxy;
mod sentinels;
mod server;

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU16, AtomicU32, Ordering},
    thread,
    time::Duration,
};

use crate::running_time::RunningTime;

pub use self::{
    certificates::Certificates,
    cluster::RedisCluster,
    proxy::Proxy,
    sentinels::{MASTER_NAME, Sentinels, mistaken},
    server::{Options, Redis},
};

/// Below the ports that the kernel gives to clients (from 32768), so that a server finds its own again when it comes back; and so is the
/// bus of a node of a Redis Cluster, 10000 above its port.
const PORTS: std::ops::Range<u16> = 20_000..22_700;
/// How long servers may take for what they do in milliseconds when nothing is wrong, in running time. Sentinels that disagree on a busy machine try again
/// after six seconds, more than once.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a server that was asked may take for its answer, by the clock. A socket's timeout knows no other time, so this outlasts a machine that stands still.
const ANSWER: Duration = Duration::from_secs(300);

/// A TCP port on the loopback interface that nobody listens on.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Suites that run at once begin at different places.
    let spread = u16::try_from(std::process::id() * 97 % u32::from(PORTS.end - PORTS.start))
        .expect("below the range's length");
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (spread.wrapping_add(step)) % (PORTS.end - PORTS.start);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Asks until the answer is there; panics with `what` if it does not come.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = RunningTime::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?}, in which the machine ran, for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// One command to the server at a port of the loopback interface; panics if it refuses.
pub fn redis_command(port: u16, words: &[&str]) -> redis::Value {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).expect("an address");
    asked_patiently(&client, words).unwrap_or_else(|error| panic!("{words:?} at port {port}: {error}"))
}

/// Asks a server that may stand still: for a moment nobody says that it does not answer.
fn asked(client: &redis::Client, words: &[&str]) -> redis::RedisResult<redis::Value> {
    query(&mut connected(client)?, words, Duration::from_secs(10))
}

/// Asks a server that runs, on a machine that may stand still. A connection that takes too long is made anew: until it is there nothing was asked. A command is
/// sent once, because some do something else the second time.
fn asked_patiently(client: &redis::Client, words: &[&str]) -> redis::RedisResult<redis::Value> {
    let connect = || match connected(client) {
        Err(error) if error.is_timeout() => None,
        connected => Some(connected),
    };
    query(&mut wait_for("a connection to Redis", connect)?, words, ANSWER)
}

fn connected(client: &redis::Client) -> redis::RedisResult<redis::Connection> {
    client.get_connection_with_timeout(Duration::from_secs(2))
}

fn query(
    connection: &mut redis::Connection,
    words: &[&str],
    patience: Duration,
) -> redis::RedisResult<redis::Value> {
    connection.set_read_timeout(Some(patience))?;
    let (verb, rest) = words.split_first().expect("a command");
    redis::cmd(verb).arg(rest).query(connection)
}

/// A temporary directory that goes with the value. Short: the path of a Unix socket has at most 107 bytes.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ratelimit-redis-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}
