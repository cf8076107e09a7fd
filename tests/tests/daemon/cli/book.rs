//! Every command of the documentation, run as it is written there.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

use ratelimit_tests::{
    daemon::{Edge, binary},
    netns::EDGE,
};

use super::captures::capture;

/// A policy that has everything that commands of the documentation name. The store is away: no verb waits for it.
const POLICY: &str = r#"
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

[cluster]
redis = "redis://127.0.0.1:1"
"#;

/// Programs whose lines are commands.
const PROGRAMS: [&str; 19] = [
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
    "mount",
    "ip",
    "ethtool",
    "journalctl",
];

/// How commands begin that are not run here, and why.
const NOT_RUN: [(&str, &str); 15] = [
    ("cargo ", "builds or tests this checkout, each for minutes; CI runs them"),
    ("sysctl ", "changes the machine"),
    ("apt ", "changes the machine; `cargo xtask dist --check` does it in a Debian root"),
    ("dnf ", "changes the machine, and needs a Fedora"),
    ("editor ", "is for people"),
    ("tar ", "changes the machine"),
    ("systemctl ", "changes the machine; `cargo xtask dist --check` does it in a Debian root"),
    ("systemd-sysusers ", "changes the machine; `cargo xtask dist --check` does it in a Debian root"),
    ("curl ", "the suite `requests` asks `/v1/check` and `/v1/refund` with a client of its own"),
    ("redis-cli ", "the suite `requests` runs redis-cli, in resp"),
    ("envoy ", "the suite `requests` starts Envoy with that file, in grpc::envoy"),
    ("ratelimit run ", "it is how the daemon of this test was started"),
    ("ratelimit serve ", "the suite `requests` starts it"),
    ("ratelimit watch --reason limit_syns --pcap - | wireshark", "opens a window"),
    ("ratelimit top #", "is a terminal until somebody presses a key"),
];

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
    let mut example = command.replace("[--", "--").replace(']', "").replace(" | ", "|").replace('|', " | ");
    for (word, meant) in [
        (" N ", " 5 "),
        ("CIDR", "203.0.113.0/24"),
        ("REASON", "limit_syns"),
        ("eth0", EDGE),
        ("/etc/ratelimit.toml", "policy.toml"),
        ("/etc/ratelimit/policy.toml", "policy.toml"),
        ("attack.pcap", "flood.pcapng"),
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
         detach|status|stats|doctor) exec {binary} \"$@\" --state {state} --pin {pin} ;;\n\
         *) exec {binary} \"$@\" --state {state} ;;\nesac\n"
    );
    let path = folder.join("ratelimit");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn every_command_of_the_documentation_runs_or_is_listed_with_the_reason_why_it_does_not() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    let folder = edge.dir().join("bin");
    fs::create_dir_all(&folder).unwrap();
    program(&edge, &folder);
    capture(edge.dir());
    for file in ["new.toml", "enforce.toml"] {
        fs::write(edge.dir().join(file), POLICY.replace("5000 packets/s", "4000 packets/s")).unwrap();
    }
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let shell = |line: &str| -> Child {
        let mut shell = edge.wire.on_edge("sh");
        shell.args(["-c", line]).current_dir(edge.dir()).env("PATH", &path);
        shell.env_remove("SSH_CONNECTION").env_remove("SSH_CLIENT");
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (mut ran, mut unused) = (0, NOT_RUN.to_vec());
    let (mut wrong, mut looking) = (Vec::new(), Vec::new());
    // 0, or 1 for what was found: there is no attack 7 here, and a policy differs.
    let mut judge = |page: &str, line: &str, child: Child| {
        let output = child.wait_with_output().unwrap();
        if !matches!(output.status.code(), Some(0 | 1)) {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            wrong.push(format!("{page}: {line}: {}: {said}", output.status));
        }
    };
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let page = page.file_name().unwrap().to_string_lossy().into_owned();
        for command in commands(&text) {
            let begins = |start: &str| format!("{command} #").starts_with(start);
            if let Some((start, _)) = NOT_RUN.iter().find(|(start, _)| begins(start)) {
                unused.retain(|(other, _)| other != start);
                continue;
            }
            let line = example(&command);
            ran += 1;
            let child = shell(&line);
            if line.contains(" --for 1s") {
                looking.push((page.clone(), line, child));
            } else {
                judge(&page, &line, child);
            }
        }
        // What one page left to be confirmed is not in the way of the next.
        shell("ratelimit confirm").wait().unwrap();
    }
    looking.into_iter().for_each(|(page, line, child)| judge(&page, &line, child));
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), daemon.log());
    assert!(ran >= 60, "{ran} commands ran");
    assert!(unused.is_empty(), "no page has {unused:?}");
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
