//! A policy file or a build that changes while no daemon is alive: whoever is still there keeps what was spent.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    daemon::{Daemon, Edge},
    netns::{EDGE, EDGE_V4, EDGE_V6},
    redis::wait_for,
    service::with_open_files,
    traffic::{PORT, Sink, done, edge_with_sources, flood, sent},
};

const ONE: &str = "10.99.0.11";
const OTHER: &str = "10.99.0.12";
const THIRD: &str = "10.99.0.13";

/// What one source, and all of them, may have of the service behind the sink in a day.
const PER_SOURCE: u64 = 20;
const TOTAL: u64 = 30;

/// Nearly all of it: cells of the prefilter keep a little back.
fn nearly(all: u64, admitted: u64) {
    assert!((all - all / 5..=all).contains(&admitted), "{admitted} of {all}");
}

/// A service that shares the sink's port with the others, at one destination.
fn service(name: &str, to: &str) -> String {
    format!(
        "[[service]]\nname = {name:?}\n\
         match = {{ protocol = \"udp\", ports = [{PORT}], destinations = [{to:?}] }}\n\
         per_source = [\"{PER_SOURCE} packets/day\"]\ntotal = [\"{TOTAL} packets/day\"]\n"
    )
}

/// The file with these services, and as many packets per second for every source.
fn policy(pps: u32, services: &[String]) -> String {
    format!("[source]\nladder = false\nlimits = [\"{pps} packets/s\"]\n{}", services.concat())
}

/// Sends more than anybody may have, and waits until all of it has been judged: refused, or counted by the sink.
fn offer(edge: &Edge, sink: &mut Sink, from: &str) -> u64 {
    let refused = || {
        ["limit_packets", "limit_user", "service_total"]
            .map(|reason| edge.dropped(reason))
            .iter()
            .sum::<u64>()
    };
    let (dropped, arrived) = (refused(), sink.datagrams(from));
    let offered = sent(flood(edge, from, EDGE_V4, 1_000, 0.1));
    assert!(offered >= 2 * TOTAL, "only {offered} were sent");
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let admitted = sink.datagrams(from) - arrived;
        if admitted + refused() - dropped == offered {
            return admitted;
        }
        assert!(
            Instant::now() < deadline,
            "{admitted} arrived of {offered}, {} refused",
            refused() - dropped
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// The two ways for a daemon to go.
fn ways() -> [fn(Daemon); 2] {
    [Daemon::kill_9, |daemon| assert!(daemon.terminate().0.success())]
}

#[test]
fn services_that_share_a_port_keep_what_was_spent_when_the_file_changes_without_a_daemon() {
    for end in ways() {
        let edge = edge_with_sources(&[ONE, OTHER, THIRD]);
        let [here, there, elsewhere] = [EDGE_V4, "10.99.7.1", "10.99.7.0/24"];
        let mut daemon = edge.start(&policy(50_000, &[service("m", here), service("z", there)]));
        let mut sink = Sink::start(&edge, EDGE_V4);
        nearly(PER_SOURCE, offer(&edge, &mut sink, ONE));
        // Three quarters of the total are for untracked sources.
        assert!(offer(&edge, &mut sink, OTHER) > 0);
        for (what, next) in [
            ("one comes", vec![service("a", elsewhere), service("m", here), service("z", there)]),
            ("the order changes", vec![service("z", there), service("m", here), service("a", elsewhere)]),
            ("one goes, others come", vec![service("b", elsewhere), service("c", there), service("m", here)]),
            ("others are renamed", vec![service("bb", elsewhere), service("m", here), service("cc", there)]),
            ("its destinations change", vec![service("m", "10.99.0.0/24"), service("cc", there)]),
            ("it has the port to itself", vec![service("m", "0.0.0.0/0")]),
        ] {
            end(daemon);
            // Limits of sources differ too, or nothing might have to be put in force.
            daemon = edge.start(&policy(60_000, &next));
            daemon.wait_for_log("program replaced in place, buckets kept");
            assert_eq!(offer(&edge, &mut sink, ONE), 0, "what one source had, when {what}");
            assert_eq!(offer(&edge, &mut sink, THIRD), 0, "what all had together, when {what}");
        }
    }
}

#[test]
fn a_service_in_the_place_of_one_that_went_without_a_daemon_starts_afresh() {
    let edge = edge_with_sources(&[ONE]);
    let [here, there] = [EDGE_V4, "10.99.7.1"];
    let daemon = edge.start(&policy(50_000, &[service("m", here), service("z", there)]));
    let mut sink = Sink::start(&edge, EDGE_V4);
    nearly(PER_SOURCE, offer(&edge, &mut sink, ONE));
    daemon.kill_9();
    // As at run time: a name that nobody had is somebody else.
    let daemon = edge.start(&policy(50_000, &[service("n", here), service("z", there)]));
    nearly(PER_SOURCE, offer(&edge, &mut sink, ONE));
    drop(daemon);
}

const USER: &str = "10.99.0.14";
const OTHER_USER: &str = "10.99.0.15";
const WINDOW_USER: &str = "10.99.0.16";
const OTHER_WINDOW_USER: &str = "10.99.0.17";

/// Users with limits of both kinds, in so large a table of sources.
fn users_policy(table_entries: u32) -> String {
    let user = |name: &str, source: &str, manner: &str| {
        format!(
            "[[user]]\nname = {name:?}\nsources = [{source:?}]\nnetwork = [\"{PER_SOURCE} packets/day{manner}\"]\n"
        )
    };
    format!(
        "[source]\nladder = false\nlimits = [\"50000 packets/s\"]\ntable_entries = {table_entries}\n{}{}{}{}",
        user("u", USER, ""),
        user("ou", OTHER_USER, ""),
        user("w", WINDOW_USER, " fixed-window"),
        user("ow", OTHER_WINDOW_USER, " fixed-window"),
    )
}

#[test]
fn another_build_gives_users_nothing_twice() {
    let edge = edge_with_sources(&[USER, OTHER_USER, WINDOW_USER, OTHER_WINDOW_USER]);
    let mut daemon = edge.start(&users_policy(1_000));
    let mut sink = Sink::start(&edge, EDGE_V4);
    nearly(PER_SOURCE, offer(&edge, &mut sink, USER));
    assert_eq!(offer(&edge, &mut sink, WINDOW_USER), PER_SOURCE);
    for _ in 0..2 {
        daemon.kill_9();
        edge.rename_layouts(0).unwrap();
        daemon = edge.start(&users_policy(1_000));
        daemon.wait_for_log("maps of another layout found (abi 0, 1000 sources)");
        for spent in [USER, WINDOW_USER] {
            assert_eq!(offer(&edge, &mut sink, spent), 0, "{spent} had all of it");
        }
        // What was left is not known, and does not count: a burst is what this costs.
        assert_eq!(offer(&edge, &mut sink, OTHER_USER), 0, "begins spent");
    }
    // So do sources, in general: the first packets of a user may be refused for that.
    let left = PER_SOURCE - offer(&edge, &mut sink, OTHER_WINDOW_USER);
    assert_eq!(offer(&edge, &mut sink, OTHER_WINDOW_USER), left, "windows are carried over");
}

#[test]
fn another_build_or_a_table_of_another_size_gives_sources_and_totals_nothing_twice() {
    let edge = edge_with_sources(&[ONE, OTHER]);
    let with = |table_entries: u32| {
        let policy = policy(50_000, &[service("m", EDGE_V4)]);
        policy.replacen("limits", &format!("table_entries = {table_entries}\nlimits"), 1)
    };
    let mut daemon = edge.start(&with(1_000));
    let mut sink = Sink::start(&edge, EDGE_V4);
    nearly(PER_SOURCE, offer(&edge, &mut sink, ONE));
    for (entries, is_renamed) in [(2_000, false), (2_000, true)] {
        daemon.kill_9();
        if is_renamed {
            edge.rename_layouts(0).unwrap();
        }
        daemon = edge.start(&with(entries));
        daemon.wait_for_log("every source starts with empty buckets");
        for source in [ONE, OTHER] {
            assert_eq!(offer(&edge, &mut sink, source), 0, "{source}");
        }
    }
}

#[test]
fn a_table_of_another_size_takes_nothing_from_users_and_lists() {
    let edge = edge_with_sources(&[USER, OTHER_USER, WINDOW_USER]);
    let mut daemon = edge.start(&users_policy(1_000));
    let mut sink = Sink::start(&edge, EDGE_V4);
    nearly(PER_SOURCE, offer(&edge, &mut sink, USER));
    assert!(edge.cli(&["block", "add", "198.51.100.7", "--reason", "from before"]).status.success());
    for entries in [2_000, 1_000] {
        assert!(edge.cli(&["limit", "set", "source.packets", "40000 packets/s"]).status.success());
        daemon.kill_9();
        daemon = edge.start(&users_policy(entries));
        daemon.wait_for_log("source.packets had been set to 40000 packets/s burst 40000 and not saved");
        daemon.wait_for_log("lists, users and totals are kept; every source starts with empty buckets");
        assert_eq!(offer(&edge, &mut sink, USER), 0, "it had all of it");
    }
    for unspent in [OTHER_USER, WINDOW_USER] {
        let first = offer(&edge, &mut sink, unspent);
        nearly(PER_SOURCE, first + offer(&edge, &mut sink, unspent));
    }
    assert_eq!(edge.json(&["block", "list"])["blocks"][0]["reason"], "from before");
    assert_eq!(fs::read_dir(edge.pin()).unwrap().count(), 2, "the links, and one layout");
}

/// Runs a daemon and stops it before and after its first call that gives a link another program (`BPF_LINK_UPDATE` of `bpf(2)`), each time until there is
/// a file. What is in force does not stop: so the switch takes as long as somebody likes.
const SLOW_SWITCH: &str = "
import ctypes, os, struct, sys, time
libc, process, where = ctypes.CDLL(None, use_errno=True), os.fork(), sys.argv[1]
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
if process == 0:
    libc.ptrace(0, 0, None, None)  # PTRACE_TRACEME
    os.execvp(sys.argv[2], sys.argv[2:])
os.waitpid(process, 0)
libc.ptrace(0x4200, process, None, 0x100001)  # PTRACE_SETOPTIONS: EXITKILL, TRACESYSGOOD
bpf = {'x86_64': 321, 'aarch64': 280}[os.uname().machine]
signal, switching, switched = 0, False, False
while True:
    libc.ptrace(7 if switched else 24, process, None, signal)  # PTRACE_CONT, PTRACE_SYSCALL
    status = os.waitpid(process, 0x40000000)[1]  # __WALL
    if os.WIFEXITED(status) or os.WIFSIGNALED(status):
        break
    signal = os.WSTOPSIG(status)
    if signal != 0x85:
        signal = 0 if signal == 5 else signal  # SIGTRAP says that another program is executed
        continue
    signal, call = 0, ctypes.create_string_buffer(96)
    libc.ptrace(0x420e, process, 96, call)  # PTRACE_GET_SYSCALL_INFO
    entered = call.raw[0] == 1
    if entered:
        switching = struct.unpack_from('QQ', call.raw, 24) == (bpf, 29)
    if switching:
        switched = not entered
        name = where + ('/switching' if entered else '/switched')
        open(name, 'w').close()
        while not os.path.exists(name + '.go-on'):
            time.sleep(0.005)
";

#[test]
fn a_switch_that_takes_long_gives_sources_users_totals_and_windows_nothing_twice() {
    const V6: &str = "fd00:99:1:1::66";
    let edge = edge_with_sources(&[ONE, USER, WINDOW_USER, V6]);
    // Buckets fill within a tenth of a second: much earlier than links are switched here. The limit of every source counts nothing that is sent, so that
    // it refuses nothing in the place of the others.
    let policy = format!(
        "[source]\nladder = false\nlimits = [\"100 syns/s\"]\n\
         [[service]]\nname = \"each\"\nmatch = {{ protocol = \"udp\", ports = [{PORT}], destinations = [{EDGE_V4:?}] }}\n\
         per_source = [\"1000 packets/s burst 100\"]\n\
         [[service]]\nname = \"all\"\nmatch = {{ protocol = \"udp\", ports = [{PORT}], destinations = [{EDGE_V6:?}] }}\n\
         total = [\"1000 packets/s burst 100\"]\n\
         [[user]]\nname = \"u\"\nsources = [{USER:?}]\nnetwork = [\"1000 packets/s burst 100\"]\n\
         [[user]]\nname = \"w\"\nsources = [{WINDOW_USER:?}]\nnetwork = [\"{PER_SOURCE} packets/day fixed-window\"]\n"
    );
    edge.start(&policy).kill_9();
    edge.rename_layouts(0).unwrap();
    let mut sinks = [Sink::start(&edge, EDGE_V4), Sink::start(&edge, EDGE_V6)];
    let mut arrived =
        || [(ONE, 0), (USER, 0), (WINDOW_USER, 0), (V6, 1)].map(|(from, sink)| sinks[sink].datagrams(from));
    let mut admitted = || {
        let before = arrived();
        let to = |from: &str| if from == V6 { EDGE_V6 } else { EDGE_V4 };
        let floods = [ONE, USER, WINDOW_USER, V6].map(|from| flood(&edge, from, to(from), 2_000, 0.1));
        floods.into_iter().for_each(done);
        let after = arrived();
        [0, 1, 2, 3].map(|at| after[at] - before[at])
    };
    let command = edge.run_command();
    let mut slow = Command::new("python3");
    slow.args(["-c", SLOW_SWITCH]).arg(edge.dir()).arg(command.get_program()).args(command.get_args());
    slow.args(["--iface", EDGE]);
    let wait_for_file = |name: &str| {
        let path = edge.dir().join(name);
        wait_for(name, || path.exists().then(Instant::now))
    };
    let go_on = |name: &str| fs::write(edge.dir().join(name).with_extension("go-on"), "").unwrap();
    let (before, held, daemon) = thread::scope(|scope| {
        let starting = scope.spawn(|| Daemon::start(slow));
        let since = wait_for_file("switching");
        let before = admitted();
        thread::sleep(Duration::from_millis(1_300).saturating_sub(since.elapsed()));
        go_on("switching");
        wait_for_file("switched");
        let held = admitted();
        go_on("switched");
        (before, held, starting.join().unwrap())
    });
    let [one, user, windowed, all] = before;
    assert!(one > 50 && user > 50 && all > 50, "{before:?}");
    assert_eq!(windowed, PER_SOURCE);
    assert_eq!(held, [0; 4], "the link has the new program, and nobody knows that yet");
    daemon.wait_for_log("every source starts with empty buckets");
    let [one, user, windowed, all] = admitted();
    assert!(one > 0 && user > 0 && all > 0, "{one} {user} {all}");
    assert_eq!(windowed, 0, "what was used of a window while links were switched is known");
}

/// The limits of open files that a start may run into while it takes over the program on an interface.
const FEW_FILES: std::ops::Range<u32> = 50..66;

#[test]
fn a_start_that_runs_out_of_descriptors_takes_the_program_off_no_interface() {
    let edge = Edge::new();
    edge.start("[source]\nlimits = [\"100 packets/s\"]\n").kill_9();
    let attached = || edge.json(&["status"])["interfaces"].as_array().map_or(0, Vec::len);
    assert_eq!(attached(), 1, "nobody is alive, and the program is there");
    let log = edge.dir().join("few-files.log");
    let mut refused = 0;
    for most in FEW_FILES.step_by(2) {
        let mut command = edge.run_command();
        command.args(["--iface", EDGE]);
        let mut few = with_open_files(Path::new(command.get_program()), most);
        few.args(command.get_args()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut child = few.spawn().unwrap();
        let mut first_line = String::new();
        // The daemon says that it is ready, or ends.
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first_line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let told = fs::read_to_string(&log).unwrap();
        refused += u32::from(first_line.is_empty() && told.contains("Too many open files"));
        assert_eq!(attached(), 1, "{most} open files: {told}");
    }
    assert!(refused > 0, "every start had enough");
}
