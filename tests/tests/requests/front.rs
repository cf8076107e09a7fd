//! The front process: what it can do, what it cannot, and what becomes of the host when the process ends.

mod intruder;
mod invaded;

use std::{
    fs, io,
    net::{TcpListener, UdpSocket},
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream},
    },
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    answer::{assert_refused, stderr},
    daemon::{Daemon, Edge, binary},
    netns::EDGE,
    redis::{Options, Redis, wait_for},
    service::Client,
};

const API: &str = "[[api]]\nname = \"a\"\nlimits = [\"1000/min\"]\n";

fn policy(edge: &Edge) -> String {
    let (socket, token) = (edge.dir().join("http.sock"), edge.dir().join("operator.token"));
    fs::write(&token, "an-operators-token-0123456789\n").unwrap();
    format!(
        "[source]\nlimits = [\"5000 packets/s burst 10000\"]\n[listen]\nhttp = [\"unix:{}\", \"127.0.0.1:8080\"]\nmetrics = \"127.0.0.1:9090\"\n\
         operator_token_file = \"{}\"\n{API}",
        socket.display(),
        token.display()
    )
}

fn http(edge: &Edge) -> Client<UnixStream> {
    Client::new(UnixStream::connect(edge.dir().join("http.sock")).expect("the daemon listens"))
}

/// A line of `/proc/PID/status`.
fn status_of(pid: u32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:"))).expect(field);
    line.trim().to_owned()
}

#[test]
fn what_reads_the_network_has_no_rights_and_nothing_of_the_kernel_open() {
    let edge = Edge::new();
    let daemon = edge.start(&policy(&edge));
    assert_eq!(http(&edge).get("/v1/check?user=u&api=a").status, 200);
    let front = daemon.front();
    let none = "0000000000000000";
    for sets in ["CapPrm", "CapEff", "CapInh", "CapBnd", "CapAmb"] {
        assert_eq!(status_of(front, sets), none, "{sets}");
    }
    assert!(!status_of(front, "Uid").split_whitespace().any(|uid| uid == "0"), "{}", status_of(front, "Uid"));
    assert!(!status_of(front, "Gid").split_whitespace().any(|gid| gid == "0"));
    assert_eq!((status_of(front, "NoNewPrivs").as_str(), status_of(front, "Seccomp").as_str()), ("1", "2"));
    let open: Vec<String> = fs::read_dir(format!("/proc/{front}/fd"))
        .unwrap()
        .filter_map(|file| Some(fs::read_link(file.unwrap().path()).ok()?.display().to_string()))
        .collect();
    assert!(open.iter().any(|file| file.starts_with("socket:")), "{open:?}");
    assert!(!open.iter().any(|file| file.contains("bpf")), "{open:?}");
    let words = fs::read_to_string(format!("/proc/{front}/cmdline")).unwrap();
    assert!(words.starts_with("ratelimit\0front\0"), "{words:?}");
}

/// Capabilities that a daemon keeps which root has started by hand, as `docs/security.md` lists them.
const KEPT: [(u32, &str); 11] = [
    (0, "CAP_CHOWN"),
    (1, "CAP_DAC_OVERRIDE"),
    (3, "CAP_FOWNER"),
    (5, "CAP_KILL"),
    (6, "CAP_SETGID"),
    (7, "CAP_SETUID"),
    (8, "CAP_SETPCAP"),
    (10, "CAP_NET_BIND_SERVICE"),
    (12, "CAP_NET_ADMIN"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];

const CAP_SYS_NICE: u32 = 23;
const CAP_SYS_RESOURCE: u32 = 24;

#[test]
fn a_daemon_that_root_has_started_keeps_the_rights_that_it_uses_in_every_thread_and_can_get_no_others() {
    let edge = Edge::new();
    let daemon = edge.start(&policy(&edge));
    assert_eq!(http(&edge).get("/v1/check?user=u&api=a").status, 200);
    let all = KEPT.iter().fold(0_u64, |all, (number, _)| all | 1 << number);
    // Root of a container may have fewer.
    let own = u64::from_str_radix(&status_of(std::process::id(), "CapPrm"), 16).unwrap();
    assert_ne!(own & !all, 0, "there has to be something to give up");
    // Without the right to raise the limit of priorities, the right to set them stays.
    let priorities = if own & (1 << CAP_SYS_RESOURCE) == 0 { 1 << CAP_SYS_NICE } else { 0 };
    let kept = format!("{:016x}", (all | priorities) & own);
    let of_thread = |thread: &str, field: &str| {
        let text = fs::read_to_string(format!("/proc/{}/task/{thread}/status", daemon.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:"))).expect(field);
        line.trim().to_owned()
    };
    let threads: Vec<String> = fs::read_dir(format!("/proc/{}/task", daemon.pid()))
        .unwrap()
        .map(|task| task.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert!(threads.len() > 1, "{threads:?}");
    for thread in &threads {
        for sets in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(of_thread(thread, sets), kept, "{sets} of thread {thread}");
        }
        for sets in ["CapInh", "CapAmb"] {
            assert_eq!(of_thread(thread, sets), "0000000000000000", "{sets} of thread {thread}");
        }
        assert_eq!(of_thread(thread, "NoNewPrivs"), "1", "thread {thread}");
    }
    // The page has the same.
    let page = include_str!("../../../docs/security.md");
    assert!(page.contains(&format!("`{all:016x}`")), "{all:016x}");
    for (_, name) in KEPT {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

/// What somebody tries who has taken over a front process, whatever user that has.
const ATTEMPTS: [&str; 19] = [
    "list BPF programs",
    "open a packet socket",
    "open a raw socket",
    "open a netlink socket",
    "read a secret",
    "read users",
    "list the root directory",
    "write a file",
    "read the daemon's memory",
    "read the daemon's environment",
    "signal the daemon",
    "run a program",
    "become root",
    "bind a TCP port",
    "bind a UDP port",
    "signal a thread of the daemon",
    "change limits of the daemon",
    "have a file signal the daemon",
    "have a socket signal the daemon",
];

/// Those that the system call filter ends on every kernel. Before 6.12 nothing else would, for a front with the daemon's user.
const FILTERED: [&str; 5] = [
    "signal a thread of the daemon",
    "change limits of the daemon",
    "have a file signal the daemon",
    "choose what a file signals",
    "have a socket signal the daemon",
];

/// What an honest front does.
const NEEDED: [&str; 6] = [
    "read the file of hosts",
    "ask a server of names",
    "open a UDP socket",
    "start a thread",
    "signal a thread of its own",
    "change limits of its own",
];

/// What becomes of each attempt of somebody who has taken over a front process, which is started by these words.
fn attempts(before: &[&str]) -> String {
    let edge = Edge::new();
    let daemon = edge.start(&policy(&edge));
    let writable = edge.dir().join("writable");
    fs::create_dir(&writable).unwrap();
    Command::new("chmod").arg("777").args([edge.dir(), &writable]).status().unwrap();
    let names = UdpSocket::bind("127.0.0.1:0").unwrap();
    let names_at = names.local_addr().unwrap().to_string();
    let answering = thread::spawn(move || answer_one(&names));
    let (_asked, stdin) = UnixStream::pair().unwrap();
    let (_asking, stdout) = UnixStream::pair().unwrap();
    // Sockets of another process, which are reached without a file.
    let (abstract_name, tcp) =
        (format!("ratelimit-test-{}", edge.dir().display()), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
    let _abstract_socket = UnixListener::bind_addr(&address).unwrap();
    // Whoever has not given up its rights gets there.
    UnixStream::connect_addr(&address).unwrap();
    let program = binary("taken-over");
    let mut words = before.iter().map(Path::new).chain([program.as_path()]);
    let taken_over = Command::new(words.next().expect("a program"))
        .args(words)
        .arg(edge.state().join("control.sock"))
        .arg(edge.dir().join("operator.token"))
        .arg(&writable)
        .arg(daemon.pid().to_string())
        .arg(&abstract_name)
        .arg(tcp.local_addr().unwrap().to_string())
        .arg(names_at)
        .stdin(Stdio::from(OwnedFd::from(stdin)))
        .stdout(Stdio::from(OwnedFd::from(stdout)))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = taken_over.wait_with_output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(!writable.join("written").exists());
    answering.join().unwrap().unwrap();
    said
}

/// Answers the first datagram that comes.
fn answer_one(socket: &UdpSocket) -> io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let (_length, from) = socket.recv_from(&mut [0; 64])?;
    socket.send_to(b"here", from).map(drop)
}

#[test]
fn who_has_taken_over_the_front_process_gets_nowhere() {
    // As a user of its own, and as that of a daemon that may not change users.
    for before in [&[][..], &["setpriv", "--bounding-set=-setuid,-setgid", "--"]] {
        let said = attempts(before);
        for attempt in ATTEMPTS {
            assert!(said.contains(&format!("{attempt}: refused (")), "{before:?}: {attempt}: {said}");
        }
        for attempt in FILTERED {
            let refused = format!("{attempt}: refused (Function not implemented");
            assert!(said.contains(&refused), "{before:?}: {attempt}: {said}");
        }
        for needed in NEEDED {
            assert!(said.contains(&format!("{needed}: done")), "{before:?}: {needed}: {said}");
        }
        // Landlock refuses abstract sockets of others, by themselves and not because of their user. Connections over TCP are what an honest front is for.
        assert!(
            said.contains("connect to an abstract socket: refused (Operation not permitted"),
            "{before:?}: {said}"
        );
        assert!(said.contains("connect to a TCP port: done"), "{before:?}: {said}");
        // The socket is for the daemon's user, which the front has in the second case. The daemon knows its front by the number of its process and refuses it.
        let refused = said.contains("connect to the control socket: refused (");
        assert_eq!(refused, before.is_empty(), "{said}");
    }
}

#[test]
fn neither_process_has_the_password_of_the_store_among_its_words_or_in_its_environment() {
    let edge = Edge::new();
    let server = Redis::single(Options::with(["user limiter on >hunter1 ~* +@all"]));
    let password = edge.dir().join("password");
    fs::write(&password, "hunter1\n").unwrap();
    edge.write_policy(&format!("{}sharing = \"strict\"\n", policy(&edge)));
    let mut command = edge.run_command();
    let store = format!("redis+unix://limiter@{}", server.socket().display());
    command.args(["--iface", EDGE, "--redis", &store, "--redis-password-file"]).arg(&password);
    // The environment that the daemon is started with may have secrets of somebody else, which the front need not know.
    command.env("RATELIMIT_LOG", "info").env("PASSWORD_OF_SOMEBODY", "hunter2");
    let daemon = Daemon::start(command);
    wait_for("the store to know the front by its password", || {
        let clients = format!("{:?}", server.ask(&["CLIENT", "LIST"]));
        clients.contains("user=limiter").then_some(())
    });
    let read = |pid: u32, file: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let named = password.display().to_string();
    assert!(read(daemon.pid(), "cmdline").contains(&named), "{}", read(daemon.pid(), "cmdline"));
    for (process, pid) in [("daemon", daemon.pid()), ("front", daemon.front())] {
        assert!(
            read(pid, "environ").contains("RATELIMIT_LOG=info"),
            "the environment of the {process} can be read"
        );
        for file in ["cmdline", "environ"] {
            assert!(!read(pid, file).contains("hunter1"), "{file} of the {process} has the password");
        }
    }
    assert!(read(daemon.pid(), "environ").contains("hunter2"));
    assert!(!read(daemon.front(), "environ").contains("hunter2"), "the front has the daemon's environment");
}

#[test]
fn a_front_process_that_ends_is_replaced_and_nothing_else_notices() {
    let edge = Edge::new();
    let daemon = edge.start(&policy(&edge));
    assert_eq!(http(&edge).get("/v1/check?user=u&api=a").status, 200);
    let before = daemon.front();
    // Signals are for the daemon: a terminal and systemd send them to both.
    for signal in ["HUP", "INT", "TERM"] {
        assert!(
            Command::new("kill")
                .arg(format!("-{signal}"))
                .arg(before.to_string())
                .status()
                .unwrap()
                .success()
        );
    }
    assert_eq!(http(&edge).get("/v1/check?user=u&api=a").status, 200);
    assert_eq!(daemon.front(), before);
    assert!(Command::new("kill").args(["-9", &before.to_string()]).status().unwrap().success());
    daemon.wait_for_log("the front process has ended (signal: 9 (SIGKILL))");
    assert!(edge.cli(&["block", "add", "203.0.113.7"]).status.success(), "orders are carried out meanwhile");
    // Callers wait in the sockets, which the daemon has.
    assert_eq!(http(&edge).get("/v1/check?user=u&api=a").status, 200);
    daemon.wait_for_log("another front process serves requests");
    assert_ne!(daemon.front(), before);
    let warned = || edge.json(&["status"])["warnings"].to_string();
    assert!(!warned().contains("front process"), "{}", warned());
    let (ended, log) = daemon.terminate();
    assert!(ended.success(), "{log}");
}

#[test]
fn a_front_process_that_hangs_holds_up_no_order_and_is_replaced_if_it_stays_so() {
    let edge = Edge::new();
    let daemon = edge.start(&policy(&edge));
    let front = daemon.front().to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &front]).status().unwrap().success());
    signal("-STOP");
    let begun = Instant::now();
    assert!(edge.cli(&["block", "add", "203.0.113.7"]).status.success());
    assert!(edge.cli(&["limit", "list"]).status.success());
    assert!(edge.json(&["status"])["blocked_prefixes"].as_u64() == Some(1));
    // Each of them would wait for seconds if it waited for an answer of the front.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_refused(
        &edge.cli(&["test", "--api", "a"]),
        3,
        &["the front process does not answer; ask again in a second"],
    );
    signal("-CONT");
    assert_eq!(http(&edge).get("/v1/check?user=u&api=a").status, 200);
    assert_eq!(daemon.front().to_string(), front, "a short pause replaces nobody");
    // For good: a caller waits in the socket until there is another front.
    signal("-STOP");
    wait_for("every thread of the front stands still", || {
        let tasks = fs::read_dir(format!("/proc/{front}/task")).unwrap();
        let stands =
            |task: fs::DirEntry| fs::read_to_string(task.path().join("stat")).unwrap().contains(") T ");
        tasks.map(Result::unwrap).all(stands).then_some(())
    });
    let mut waiting = http(&edge);
    daemon.wait_for_log("it has left 10 questions in a row unanswered, one a second; it is killed");
    assert_eq!(waiting.get("/v1/check?user=u&api=a").status, 200);
    assert_ne!(daemon.front().to_string(), front);
}

#[test]
fn sockets_are_free_again_as_soon_as_a_daemon_was_killed() {
    let edge = Edge::new();
    let mut daemon = edge.start(&policy(&edge));
    for _ in 0..3 {
        let front = daemon.front();
        daemon.kill_9();
        daemon = edge.start_again();
        let begun = Instant::now();
        wait_for("the front process of a killed daemon ends", || {
            (!fs::exists(format!("/proc/{front}")).unwrap()).then_some(())
        });
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(http(&edge).get("/v1/check?user=u&api=a").status, 200);
    }
}

#[test]
fn changes_over_the_dashboard_take_the_token_that_the_front_process_does_not_know() {
    let edge = Edge::new();
    let _daemon = edge.start(&policy(&edge));
    let order = r#"{"order":"block","prefix":"203.0.113.9","for":"10m"}"#;
    let post = |token: Option<&str>| {
        let shown = token.map(|token| format!("Bearer {token}"));
        let mut fields = vec![("content-type", "application/json")];
        fields.extend(shown.as_deref().map(|shown| ("authorization", shown)));
        http(&edge).under("localhost").ask("POST", "/dashboard/order", &fields, order).status
    };
    assert_eq!((post(None), post(Some("an-operators-token-012345678X"))), (403, 401));
    let blocked = || edge.json(&["block", "list"]).to_string();
    assert!(!blocked().contains("203.0.113.9"), "{}", blocked());
    assert_eq!(post(Some("an-operators-token-0123456789")), 200);
    assert!(blocked().contains("203.0.113.9"), "{}", blocked());
}

#[test]
fn the_front_process_is_of_no_use_by_itself_and_root_is_no_user_for_it() {
    let edge = Edge::new();
    let alone = Command::new(binary("ratelimit")).arg("front").stdin(Stdio::null()).output().unwrap();
    assert_refused(&alone, 2, &["`ratelimit front` is what `ratelimit run` starts for its listeners"]);
    edge.write_policy(&policy(&edge));
    let mut command = edge.run_command();
    command.args(["--iface", EDGE, "--user", "root"]);
    let as_root = command.output().unwrap();
    assert_refused(&as_root, 2, &["user \"root\" is root; name one without rights with --user"]);
}

/// How long the supervisor of tests waits for a sign of life; two are sent in that time.
const PATIENCE: Duration = Duration::from_millis(400);

/// A supervisor that starts a front as another user for each connection, as systemd does by `packaging/systemd/ratelimit-front.socket`. The numbers of
/// the processes come over one channel, and what they tell the supervisor over the other.
fn supervise(socket: &Path) -> (mpsc::Receiver<u32>, mpsc::Receiver<Vec<u8>>) {
    let listener = UnixListener::bind(socket).unwrap();
    // A name that another user can reach, in whatever directory the test works.
    let name = format!("ratelimit-test-{}", socket.display());
    let notified = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let ((hired, fronts), (told, signs)) = (mpsc::channel(), mpsc::channel());
    thread::spawn(move || {
        let mut message = [0; 64];
        while let Ok(length) = notified.recv(&mut message) {
            let _nobody_asks = told.send(message[..length].to_vec());
        }
    });
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut front = Command::new("setpriv");
            front.args([
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                "--bounding-set=-all",
                "--",
            ]);
            front.arg(binary("ratelimit")).args(["front", "--hired"]).env_clear();
            front.env("NOTIFY_SOCKET", format!("@{name}"));
            front.env("WATCHDOG_USEC", PATIENCE.as_micros().to_string());
            front.stdin(OwnedFd::from(connection.unwrap())).stdout(Stdio::null()).stderr(Stdio::null());
            let mut front = front.spawn().unwrap();
            if hired.send(front.id()).is_err() {
                let _gone = front.kill();
            }
            thread::spawn(move || front.wait());
        }
    });
    (fronts, signs)
}

#[test]
fn a_daemon_that_may_not_change_users_hires_a_front_of_another_user() {
    let edge = Edge::new();
    let (fronts, signs) = supervise(&edge.dir().join("front.sock"));
    edge.write_policy(&policy(&edge));
    let mut command = edge.wire.on_edge("setpriv");
    command.args(["--bounding-set", "-setuid,-setgid,-kill", "--"]).arg(binary("ratelimit")).arg("run");
    command
        .arg("--policy")
        .arg(edge.policy())
        .args(["--iface", EDGE, "--front"])
        .arg(edge.dir().join("front.sock"));
    command.arg("--state").arg(edge.state()).arg("--pin").arg(edge.pin());
    let daemon = Daemon::start(command);
    let first = fronts.recv_timeout(Duration::from_secs(5)).unwrap();
    assert_eq!(http(&edge).get("/v1/check?user=u&api=a").status, 200);
    assert_eq!(status_of(first, "Uid"), "65534\t65534\t65534\t65534");
    assert_eq!(
        (status_of(first, "CapEff").as_str(), status_of(first, "Seccomp").as_str()),
        ("0000000000000000", "2")
    );
    assert_eq!(edge.json(&["status"])["warnings"], serde_json::json!([]));
    // The supervisor hears from the front until it hangs, and kills it then.
    let signal = |signal: &str| {
        assert!(Command::new("kill").args([signal, &first.to_string()]).status().unwrap().success());
    };
    assert_eq!(signs.recv_timeout(Duration::from_secs(5)).unwrap(), b"WATCHDOG=1\n");
    assert_eq!(signs.recv_timeout(Duration::from_secs(5)).unwrap(), b"WATCHDOG=1\n");
    signal("-STOP");
    wait_for("the front to stand still", || status_of(first, "State").starts_with('T').then_some(()));
    while signs.recv_timeout(PATIENCE / 8).is_ok() {}
    assert!(signs.recv_timeout(PATIENCE * 2).is_err(), "a front that hangs says that it lives");
    signal("-9");
    let second = fronts.recv_timeout(Duration::from_secs(5)).unwrap();
    daemon.wait_for_log("another front process serves requests");
    assert_eq!(http(&edge).get("/v1/check?user=u&api=a").status, 200);
    daemon.terminate();
    wait_for("the front to end with its daemon", || {
        (!Path::new(&format!("/proc/{second}/exe")).exists()).then_some(())
    });
}

#[test]
fn a_daemon_whose_front_does_not_begin_says_that_the_limits_stay_in_force_and_how_to_end_that() {
    let edge = Edge::new();
    edge.write_policy(&policy(&edge));
    let at = edge.dir().join("front.sock");
    let supervisor = UnixListener::bind(&at).unwrap();
    // Whatever this one starts ends before it serves: it takes both messages with sockets, and is gone.
    let ending = thread::spawn(move || {
        let (asked, _) = supervisor.accept().unwrap();
        for _ in 0..2 {
            invaded::received(&asked).unwrap();
        }
    });
    let output = edge.run_command().args(["--iface", EDGE, "--front"]).arg(&at).output().unwrap();
    ending.join().unwrap();
    assert_refused(
        &output,
        5,
        &["the front process has ended before it served anybody: it has closed its stream"],
    );
    let log = stderr(&output);
    assert!(log.contains("edge0 stays protected by the limits in force"), "{log}");
    assert!(log.contains("to remove the protection: ratelimit detach"), "{log}");
    assert!(edge.cli(&["detach"]).status.success());
}

#[test]
fn a_daemon_whose_supervisor_is_away_starts_the_front_itself_and_says_so() {
    let edge = Edge::new();
    edge.write_policy(&policy(&edge));
    let mut command = edge.run_command();
    command.args(["--iface", EDGE, "--front"]).arg(edge.dir().join("nobody.sock"));
    let daemon = Daemon::start(command);
    daemon.wait_for_log("no supervisor starts a front process at");
    assert_eq!(http(&edge).get("/v1/check?user=u&api=a").status, 200);
}
