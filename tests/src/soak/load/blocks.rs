//! A list that operators feed one block at a time, while the host is attacked.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use ratelimit_user::control::protocol::{Operator, Order};

use super::{LoadReport, STATUS, megabytes, timed};
use crate::{daemon::Edge, traffic::edge_with_sources};

/// Blocks that operators add.
const BLOCKS: u64 = 100_000;
/// Of them what is measured at the beginning and at the end.
const PART: u64 = BLOCKS / 10;
/// Callers at once, each with one order at a time.
const CALLERS: usize = 4;
/// Megabytes that docs/sizing.md says so many blocks take.
const BLOCKS_MB: u64 = 120;
/// CPU of the daemon for a block, in a build without optimisation.
const CPU: Duration = Duration::from_millis(5);

pub(super) fn blocks(report: &mut LoadReport) {
    let edge = edge_with_sources(&["10.99.0.2"]);
    let daemon = edge.start("[source]\nlimits = [\"1000 packets/s\"]\n");
    let pid = daemon.pid();
    let socket = socket_of(&edge);
    let (before, mb) = (spent(pid), megabytes(pid));
    let first = add(&socket, pid, 0..PART);
    let most = add(&socket, pid, PART..BLOCKS - PART);
    let last = add(&socket, pid, BLOCKS - PART..BLOCKS);
    let cpu = spent(pid).saturating_sub(before);
    let took = first.took + most.took + last.took;
    let each = cpu / BLOCKS as u32;
    let mb = megabytes(pid).saturating_sub(mb);
    let (median, longest) = timed(|| edge.cli(&["status"]).status.success());
    report.expect(
        mb <= BLOCKS_MB && longest < STATUS && each < CPU && last.cpu < first.cpu * 2,
        format!(
            "{BLOCKS} blocks in {took:.1?}, with {cpu:.1?} of CPU ({each:.2?} each; the first {PART} {:.1?}, the last {PART} {:.1?}): {mb} MB \
             more; status takes {median:.1?}, {longest:.1?} at most",
            first.cpu, last.cpu
        ),
    );
    daemon.kill_9();
    let begun = Instant::now();
    let daemon = edge.start_again();
    let took = begun.elapsed();
    let asked = Instant::now();
    let listed = edge.json(&["block", "list"])["blocks"].as_array().map_or(0, Vec::len);
    report.expect(
        listed as u64 == BLOCKS,
        format!("a start with {listed} blocks takes {took:.1?}, a list of them {:.1?}", asked.elapsed()),
    );
    drop(daemon);
}

/// What some blocks took.
struct BlockCost {
    took: Duration,
    cpu: Duration,
}

fn add(socket: &Path, pid: u32, numbers: std::ops::Range<u64>) -> BlockCost {
    let (begun, before) = (Instant::now(), spent(pid));
    let next = AtomicU64::new(numbers.start);
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= numbers.end {
                        return;
                    }
                    block(socket, number);
                }
            });
        }
    });
    BlockCost { took: begun.elapsed(), cpu: spent(pid).saturating_sub(before) }
}

fn socket_of(edge: &Edge) -> PathBuf {
    fs::read_dir(edge.state())
        .expect("the state directory")
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "sock"))
        .expect("the control socket")
}

/// CPU time that a process has had, in the kernel and in user space.
fn spent(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process");
    // Behind the name, which may have spaces in it, the times are words 12 and 13, in hundredths of a second.
    let words = stat.rsplit_once(')').map_or("", |(_, words)| words).split_whitespace();
    let ticks: u64 = words.skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn block(socket: &Path, number: u64) {
    let order = Order::BlockAdd {
        prefix: format!("{}.{}.{}.0/24", 20 + number / 65_536, number / 256 % 256, number % 256),
        for_ns: None,
        reason: None,
        cluster: false,
        operator: Operator::default(),
    };
    let mut stream = UnixStream::connect(socket).expect("the control socket");
    stream.write_all(&order.into_message().expect("a message")).expect("an order");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer");
    assert!(!line.contains("failed"), "{line}");
}
