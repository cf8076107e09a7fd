//! Every command of the documentation, run as it is written there.

use std::{
    fs,
    net::TcpStream,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    daemon::{Daemon, Edge, binary},
    netns::EDGE,
};

use super::captures::capture;

/// A policy that has everything that commands of the documentation name. The store is away: no verb waits for it.
const POLICY: &str = r#"
interfaces = ["edge0"]

[source]
limits = ["5000 packets/s burst 10000", "100 syns/s burst 200"]

[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
per_source = ["200 packets/s burst 400"]
total = ["500000 packets/s"]

[plan.gold]
network = ["20000 packets/s burst 40000"]

[[user]]
name = "acme"
plan = "gold"
sources = ["203.0.113.0/24"]

[[api]]
name = "search"
limits = ["100/hour"]
sharing = "local"

[listen]
http = ["127.0.0.1:8080", "unix:HTTP_SOCKET"]
resp = "127.0.0.1:8082"

[cluster]
redis = "redis://127.0.0.1:1"
"#;

/// Programs whose lines are commands.
const PROGRAMS: [&str; 20] = [
    "ratelimit",
    "cargo",
    "curl",
    "sysctl",
    "apt",
    "dnf",
    "editor",
    "tar",
    "systemctl",
    "systemd-sysusers",
    "podman",
    "docker",
    "kubectl",
    "redis-cli",
    "envoy",
    "grpcurl",
    "mount",
    "ip",
    "ethtool",
    "journalctl",
];

/// Commands that are not run here.
struct Elsewhere {
    /// How they begin.
    begins: &'static str,
    because: &'static str,
    /// The file with what does run them, or the nearest to them that can be run, and a part of its text.
    runs: Option<(&'static str, &'static str)>,
}

const ELSEWHERE: [Elsewhere; 8] = [
    Elsewhere {
        begins: "cargo ",
        because: "builds or tests this checkout for minutes; each line is held against what xtask understands",
        runs: Some(("xtask/src/main.rs", "fn every_command_of_the_documentation_is_understood()")),
    },
    Elsewhere {
        begins: "apt ",
        because: "changes the machine; a Debian root installs the package",
        runs: Some(("xtask/src/dist/lifecycle.rs", "dpkg -i /root/current.deb")),
    },
    Elsewhere {
        begins: "dnf ",
        because: "needs a Fedora; a Debian root installs the package with rpm",
        runs: Some(("xtask/src/dist/rpm_life.rs", "{RPM} -i /root/previous.rpm")),
    },
    Elsewhere { begins: "editor ", because: "is for people", runs: None },
    Elsewhere {
        begins: "tar ",
        because: "there is no tarball without `cargo xtask dist`, which unpacks the one that it has made",
        runs: Some(("xtask/src/dist/tree.rs", "--strip-components=1")),
    },
    Elsewhere {
        begins: "systemctl ",
        because: "changes the machine; a Debian root does it under its own systemd",
        runs: Some(("xtask/src/dist/lifecycle.rs", "systemctl enable --now ratelimit")),
    },
    Elsewhere {
        begins: "grpcurl ",
        because: "is in no package; a client of our own lists the services, and asks about health and requests",
        runs: Some((
            "tests/tests/requests/grpc/standard.rs",
            "fn reflection_lists_services_and_shows_their_files()",
        )),
    },
    Elsewhere {
        begins: "ratelimit top #",
        because: "is a terminal until somebody presses a key",
        runs: Some(("tests/tests/daemon/top.rs", "fn in_a_terminal_a_source_is_seen_explained_and_blocked")),
    },
];

/// How commands begin that have a test of their own below: daemons, and what they are asked by.
const BELOW: [&str; 4] =
    ["ratelimit run ", "ratelimit serve ", "envoy ", "curl -i -H 'x-user: ann' http://127.0.0.1:10000/"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Pages that people read to do something; decisions say why.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![repository().join("README.md"), repository().join("CONTRIBUTING.md")];
    for folder in ["docs", "docs/integrations"] {
        let entries = fs::read_dir(repository().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    pages.sort();
    pages
}

/// The commands of a page: lines of code that begin with a program.
fn commands(page: &str) -> Vec<String> {
    let (mut commands, mut fenced) = (Vec::new(), false);
    for line in page.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let Some(code) = (if fenced { Some(line) } else { line.strip_prefix("    ") }) else { continue };
        let code = code.strip_prefix("$ ").unwrap_or(code);
        let code = code.strip_prefix("sudo ").unwrap_or(code);
        let program = code.split(' ').next().unwrap_or_default();
        if code.contains(' ') && PROGRAMS.contains(&program) {
            commands.push(code.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    commands
}

/// A command with what its capital letters and brackets stand for, on this host, and without long looks.
fn example(command: &str) -> String {
    let mut example = command.to_owned();
    // Brackets and bars of other programs are what those programs are told.
    if command.starts_with("ratelimit ") {
        example = example.replace("[--", "--").replace(']', "").replace(" | ", "|").replace('|', " | ");
    }
    for (word, meant) in [
        (" N ", " 5 "),
        ("CIDR", "203.0.113.0/24"),
        ("REASON", "limit_syns"),
        ("eth0", EDGE),
        ("/etc/ratelimit.toml", "policy.toml"),
        ("/etc/ratelimit/policy.toml", "policy.toml"),
        ("attack.pcap", "flood.pcapng"),
        // What Wireshark shows in a window, tshark prints.
        ("--pcap - | wireshark -k -i -", "--for 1s --pcap - | tshark -n -r -"),
        ("systemd-sysusers /", "systemd-sysusers --root=root $PWD/root/"),
        // An answer that is no success is a failure of the command too.
        ("curl ", "curl --fail "),
    ] {
        example = example.replace(word, meant);
    }
    let is_look = ["watch", "suggest"].iter().any(|verb| example.starts_with(&format!("ratelimit {verb} ")));
    if is_look {
        // The interface is quiet: what is drafted from it must not take the place of the draft from the capture.
        example = example
            .replace(&format!("--iface {EDGE} > suggested.toml"), &format!("--iface {EDGE} > quiet.toml"));
        for time in ["10s", "5s", "10m"] {
            example = example.replace(&format!("--for {time}"), "--for 1s");
        }
    }
    example
}

/// A program called `ratelimit` that speaks to the daemon of a host.
fn program(edge: &Edge, folder: &Path) {
    let (binary, state, pin) = (binary("ratelimit"), edge.state(), edge.pin());
    let (binary, state, pin) = (binary.display(), state.display(), pin.display());
    let script = format!(
        "#!/bin/sh\ncase $1 in\ncheck|replay|suggest|completions|man|--*) exec {binary} \"$@\" ;;\n\
         detach|status|stats|doctor|run) exec {binary} \"$@\" --state {state} --pin {pin} ;;\n\
         *) exec {binary} \"$@\" --state {state} ;;\nesac\n"
    );
    fs::create_dir_all(folder).unwrap();
    let path = folder.join("ratelimit");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A line of the documentation in the namespace of a host, where `ratelimit` is the program above and other programs are those of the checkout.
fn shell(edge: &Edge, line: &str) -> Command {
    let folder = edge.dir().join("bin");
    let tools = repository().join("target/tools");
    let mut shell = edge.wire.on_edge("sh");
    let path = std::env::var("PATH").unwrap();
    shell.env("PATH", format!("{}:{path}:{}", folder.display(), tools.display()));
    shell.env_remove("SSH_CONNECTION").env_remove("SSH_CLIENT");
    shell.args(["-c", line]).current_dir(edge.dir());
    shell
}

/// What commands of the documentation find on a host, beside its policy: a capture, other policies, a root that the package was unpacked into.
fn furnish(edge: &Edge, policy: &str) {
    program(edge, &edge.dir().join("bin"));
    capture(edge.dir());
    for file in ["new.toml", "enforce.toml"] {
        fs::write(edge.dir().join(file), policy.replace("5000 packets/s", "4000 packets/s")).unwrap();
    }
    let users = edge.dir().join("root/usr/lib/sysusers.d");
    fs::create_dir_all(&users).unwrap();
    fs::create_dir_all(edge.dir().join("root/etc")).unwrap();
    let unit = repository().join("packaging/systemd/ratelimit.sysusers");
    fs::copy(unit, users.join("ratelimit.conf")).unwrap();
}

#[test]
fn every_command_of_the_documentation_runs_here_or_in_a_test_that_is_named() {
    let edge = Edge::new();
    let http = edge.dir().join("http.sock").display().to_string();
    let policy = POLICY.replace("HTTP_SOCKET", &http);
    edge.write_policy(&policy);
    // Of the namespace that asks.
    let syn_cookies = || fs::read_to_string("/proc/sys/net/ipv4/tcp_syncookies").unwrap();
    let machine = syn_cookies();
    let daemon = Daemon::start(edge.run_command());
    furnish(&edge, &policy);
    let start = |line: &str| -> Child {
        let mut shell = shell(&edge, line);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut ran = 0;
    let mut unused: Vec<&str> = ELSEWHERE.iter().map(|one| one.begins).chain(BELOW).collect();
    let (mut wrong, mut looking, mut daemons) = (Vec::new(), Vec::new(), Vec::new());
    // 0, or 1 of ours for what was found: there is no attack 7 here, and a policy differs.
    let mut judge = |page: &str, line: &str, child: Child| {
        let output = child.wait_with_output().unwrap();
        let most = i32::from(line.starts_with("ratelimit "));
        if output.status.code().is_none_or(|code| code > most) {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            wrong.push(format!("{page}: {line}: {}: {said}", output.status));
        }
    };
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let page = page.file_name().unwrap().to_string_lossy().into_owned();
        for command in commands(&text) {
            let begins = |start: &str| format!("{command} #").starts_with(start);
            let others = ELSEWHERE.iter().map(|one| one.begins).chain(BELOW);
            if let Some(start) = others.into_iter().find(|start| begins(start)) {
                unused.retain(|other| *other != start);
                if start == "ratelimit run " {
                    daemons.push(command);
                }
                continue;
            }
            let line = example(&command).replace("/run/ratelimit/http.sock", &http);
            ran += 1;
            let child = start(&line);
            if line.contains(" --for 1s") {
                looking.push((page.clone(), line, child));
            } else {
                judge(&page, &line, child);
            }
        }
        // What one page left to be confirmed is not in the way of the next.
        start("ratelimit confirm").wait().unwrap();
    }
    looking.into_iter().for_each(|(page, line, child)| judge(&page, &line, child));
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), daemon.log());
    assert!(ran >= 75, "{ran} commands ran");
    assert!(unused.is_empty(), "no page has {unused:?}");
    assert_eq!(
        (edge.wire.as_edge(syn_cookies), syn_cookies()),
        ("2\n".to_owned(), machine),
        "sysctl is for this host"
    );
    let users = fs::read_to_string(edge.dir().join("root/etc/passwd")).unwrap();
    assert!(users.contains("ratelimit:"), "{users}");
    // Daemons are started last, each in the place of the one before.
    let mut before = daemon;
    for line in daemons {
        let (ended, log) = before.terminate();
        assert!(ended.success(), "{log}");
        before = Daemon::start(shell(&edge, &format!("exec {line}")));
    }
}

/// The policy that a page shows: lines of code from the one that names the file to the next empty line.
fn shown_policy(page: &str) -> String {
    let shown = page.lines().skip_while(|line| line.trim() != "# policy.toml");
    shown.take_while(|line| !line.is_empty()).map(|line| format!("{}\n", line.trim_start())).collect()
}

/// A command that runs until the value goes.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

#[test]
fn what_the_page_about_envoy_says_is_typed_line_by_line() {
    let edge = Edge::new();
    program(&edge, &edge.dir().join("bin"));
    symlink(repository().join("docs").canonicalize().unwrap(), edge.dir().join("docs")).unwrap();
    let page = fs::read_to_string(repository().join("docs/integrations/envoy.md")).unwrap();
    edge.write_policy(&shown_policy(&page));
    let lines = commands(&page);
    let [serve, envoy, ask] = [1, 2, 3].map(|number| {
        let line = lines.iter().find(|line| line.starts_with(BELOW[number]));
        line.unwrap_or_else(|| panic!("no line begins with {:?}: {lines:?}", BELOW[number]))
    });
    let begin = |line: &str| {
        let line = line.strip_suffix(" &").expect("a line for the background");
        Running(shell(&edge, &format!("exec {line} > /dev/null 2>> log")).spawn().unwrap())
    };
    let mut both = [begin(serve), begin(envoy)];
    let begun = Instant::now();
    while edge.wire.as_edge(|| TcpStream::connect("127.0.0.1:10000").is_err()) {
        let log = fs::read_to_string(edge.dir().join("log")).unwrap_or_default();
        let all_run = both.iter_mut().all(|one| one.0.try_wait().unwrap().is_none());
        assert!(all_run && begun.elapsed() < Duration::from_secs(60), "nobody listens: {log}");
        thread::sleep(Duration::from_millis(20));
    }
    let answers = [(); 6].map(|()| {
        let output = shell(&edge, ask).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    });
    for answer in &answers[..5] {
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains("ratelimit-policy: \"web\""),
            "{answer}"
        );
    }
    assert!(answers[5].starts_with("HTTP/1.1 429 "), "{}", answers[5]);
}

#[test]
fn what_is_said_to_run_elsewhere_is_there() {
    for one in ELSEWHERE {
        let Some((file, part)) = one.runs else { continue };
        let text = fs::read_to_string(repository().join(file)).unwrap_or_default();
        assert!(text.contains(part), "{:?} {}, and {file} has no {part:?}", one.begins, one.because);
    }
}

/// The pages in a folder and below it.
fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path().canonicalize().unwrap();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn every_page_of_the_documentation_can_be_reached_from_its_index() {
    let docs = repository().join("docs").canonicalize().unwrap();
    let (mut reached, mut next) = (Vec::new(), vec![docs.join("README.md")]);
    while let Some(page) = next.pop() {
        if reached.contains(&page) {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        // A link to a heading of its own page has no file, and pages outside are no part of the book.
        let targets = targets.filter(|target| !target.is_empty());
        for target in targets.filter_map(|target| page.parent()?.join(target).canonicalize().ok()) {
            if !target.starts_with(&docs) || target == docs {
                continue;
            }
            // A link to a folder shows what is in it.
            if target.is_dir() {
                next.extend(pages_below(&target));
            } else if target.extension().is_some_and(|extension| extension == "md") {
                next.push(target);
            }
        }
        reached.push(page);
    }
    let missing: Vec<PathBuf> =
        pages_below(&docs).into_iter().filter(|page| !reached.contains(page)).collect();
    assert!(missing.is_empty(), "no way leads from docs/README.md to {missing:?}");
}
