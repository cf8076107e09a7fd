//! Every command of the documentation, run as it is written there.

use std::{
    fs,
    net::TcpStream,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    daemon::{Daemon, Edge, binary},
    netns::{EDGE, EDGE_V4},
    traffic::{done, edge_with_sources, flood},
};

use super::{captures::capture, copy_of_binary};

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

[[service]]
name = "game"
match = { protocol = "udp", ports = [4711] }
per_source = ["200 packets/s burst 200"]

[attacks]
begin = "500 packets/s"

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

/// Programs that are run here, as the page has their commands or as `example` makes them.
const RUN_HERE: [&str; 12] = [
    "ratelimit",
    "adduser",
    "curl",
    "ethtool",
    "journalctl",
    "mount",
    "openssl",
    "redis-cli",
    "setpriv",
    "sysctl",
    "systemd-sysusers",
    "tcpdump",
];

/// Commands that are not run here.
struct Elsewhere {
    /// How they begin.
    begins: &'static str,
    because: &'static str,
    /// The file with what does run them, or the nearest to them that can be run, and a part of its text.
    runs: Option<(&'static str, &'static str)>,
}

/// A row of the table below.
const fn elsewhere(
    begins: &'static str,
    because: &'static str,
    file: &'static str,
    part: &'static str,
) -> Elsewhere {
    Elsewhere { begins, because, runs: Some((file, part)) }
}

const ELSEWHERE: [Elsewhere; 22] = [
    elsewhere(
        "cargo ",
        "builds or tests this checkout for minutes; each is held against xtask's options, or the crates and tests that there are",
        "xtask/src/main.rs",
        "fn every_command_of_the_documentation_is_understood()",
    ),
    elsewhere(
        "apt install",
        "changes the machine; `cargo xtask dist --check` installs the package in a Debian root",
        "xtask/src/dist/lifecycle.rs",
        "dpkg -i /root/current.deb",
    ),
    elsewhere(
        "apt remove",
        "changes the machine; `cargo xtask dist --check` removes the package in a Debian root",
        "xtask/src/dist/lifecycle.rs",
        "dpkg --remove ratelimit",
    ),
    elsewhere(
        "apt purge",
        "changes the machine; `cargo xtask dist --check` purges the package in a Debian root",
        "xtask/src/dist/lifecycle.rs",
        "dpkg --purge ratelimit",
    ),
    elsewhere(
        "dnf ",
        "needs a Fedora; `cargo xtask dist --check` does it with rpm in a Debian root",
        "xtask/src/dist/rpm_life.rs",
        "{RPM} -i /root/previous.rpm",
    ),
    Elsewhere { begins: "editor ", because: "is for people", runs: None },
    Elsewhere { begins: "ssh ", because: "connects to a host of the reader", runs: None },
    elsewhere(
        "tar ",
        "there is no tarball without `cargo xtask dist`, which unpacks the one that it has made",
        "xtask/src/dist/tree.rs",
        "--strip-components=1",
    ),
    elsewhere(
        "systemctl ",
        "changes the machine; `cargo xtask dist --check` enables, reloads and stops the unit in a Debian root under systemd",
        "xtask/src/dist/lifecycle.rs",
        "systemctl enable --now ratelimit",
    ),
    elsewhere(
        "systemd-analyze ",
        "has no unit without an installed package; `cargo xtask dist` shows it the unit of the checkout",
        "xtask/src/dist/unit.rs",
        "tool::command(\"systemd-analyze\")",
    ),
    elsewhere(
        "grpcurl ",
        "is in no package; a client of our own lists the services, and asks about health and requests",
        "tests/tests/requests/grpc/standard.rs",
        "fn reflection_lists_services_and_shows_their_files()",
    ),
    elsewhere(
        "ratelimit top #",
        "is a terminal until somebody presses a key",
        "tests/tests/daemon/top.rs",
        "fn in_a_terminal_a_source_is_seen_explained_and_blocked",
    ),
    elsewhere(
        "kill -9 #",
        "is how a sentence calls an end without notice; tests end daemons so",
        "tests/src/daemon.rs",
        "pub fn kill_9(",
    ),
    elsewhere(
        "umount -l #",
        "would take every pin of this machine; a test does it to a file system of its own",
        "tests/tests/daemon/cli/run.rs",
        "fn a_bpf_file_system_that_is_mounted_anew_gets_every_pin_and_what_is_in_force_outlives_the_daemon",
    ),
    elsewhere(
        "promtool test rules #",
        "is told which file by its own test",
        "tests/tests/daemon/attacks.rs",
        "fn alert_rules_pass_their_tests()",
    ),
    elsewhere(
        "redis-cli --tls #",
        "wants a listener with a certificate, which has its own test",
        "tests/tests/requests/resp/access.rs",
        "\"--tls\"",
    ),
    elsewhere(
        "redis-benchmark -c 50 ",
        "is how the benchmark asks, for seconds",
        "tests/src/bin/bench/requests/client.rs",
        "on_core(self.cpu, \"redis-benchmark\")",
    ),
    elsewhere(
        "wrk ",
        "is how the benchmark asks, for seconds",
        "tests/src/bin/bench/requests/client.rs",
        "on_core(self.cpu, \"wrk\")",
    ),
    elsewhere(
        "h2load ",
        "is how the benchmark asks, for seconds",
        "tests/src/bin/bench/requests/client.rs",
        "on_core(self.cpu, \"h2load\")",
    ),
    elsewhere(
        "bpftool prog dump xlated #",
        "says what the benchmark's number is; the benchmark reads it from the kernel itself",
        "tests/src/bin/bench/cost/instructions.rs",
        "Translated::of(",
    ),
    elsewhere(
        "time qemu-system-x86_64 ",
        "says how a number was measured; the machine is started by `cargo xtask vm`",
        "xtask/src/vm/machine.rs",
        "tool::command(\"qemu-system-x86_64\")",
    ),
    // What the proxies' own files are told, which looks as a program with an option does.
    elsewhere(
        "header_up ",
        "is a line of Caddy's file",
        "docs/integrations/caddy.md",
        "header_up X-RateLimit-User",
    ),
];

/// How commands begin that have a test of their own below: daemons, and what they are asked by.
const BELOW: [&str; 4] = [
    "ratelimit run --policy ",
    "ratelimit serve --policy ",
    "envoy ",
    "curl -i -H 'x-user: ann' http://127.0.0.1:10000/",
];

/// Verbs that exit with 1 when they have found something, and the words of `docs/operating.md` that say so.
const FIND: [(&str, &str); 6] = [
    ("status", "Exits with 1 when an interface is not protected."),
    ("doctor", "Exits with 1 when something should be done."),
    ("test", "Exits with 1 if the answer is no."),
    ("diff", "`diff` shows what `apply` would change, and exits with 1 if something would."),
    ("cluster", "`cluster`, which asks, exits with 1"),
    ("known", "`known forget` exits with 1 if the address was not remembered."),
];

/// Blocks, between empty lines, that begin as a command would and show something else: the page, and how the block begins.
const SHOWN: [(&str, &str); 20] = [
    ("README.md", "attack "),
    ("README.md", "good client "),
    ("docs/architecture.md", "ratelimit-common "),
    ("docs/architecture.md", "cli "),
    ("docs/architecture.md", "run "),
    ("docs/architecture.md", "main "),
    ("docs/explain.md", "source "),
    ("docs/explain.md", "limits of "),
    ("docs/explain.md", "prefixes around "),
    ("docs/explain.md", "service dns"),
    ("docs/explain.md", "when a total "),
    ("docs/explain.md", "last refused "),
    ("docs/operating.md", "drop 198.51.100.7 "),
    ("docs/performance.md", "generator namespace "),
    ("docs/policy.md", "table inet "),
    ("docs/policy.md", "tcp dport "),
    ("docs/replay.md", "policy policy.toml "),
    ("docs/replay.md", "reason "),
    ("docs/replay.md", "source "),
    ("docs/top.md", "source "),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Names of the pages that people read to do something; decisions say why.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for folder in ["docs", "docs/integrations"] {
        let entries = fs::read_dir(repository().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        pages.extend(names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}")));
    }
    pages.sort();
    pages
}

fn read(page: &str) -> String {
    fs::read_to_string(repository().join(page)).unwrap()
}

/// A command of a page, without `$`, `sudo` and what it puts into its environment.
#[derive(Clone, Debug, PartialEq)]
struct Written {
    line: usize,
    code: String,
    /// Whether it stands in a sentence, where a verb alone can be meant.
    is_inline: bool,
}

impl Written {
    fn new(line: usize, code: &str, is_inline: bool) -> Self {
        let mut words = code.split_whitespace().peekable();
        while words.next_if(|word| *word == "sudo" || is_assignment(word)).is_some() {}
        Self { line, code: words.collect::<Vec<_>>().join(" "), is_inline }
    }

    fn program(&self) -> &str {
        self.code.split(' ').next().unwrap_or_default()
    }

    fn begins(&self, start: &str) -> bool {
        format!("{} #", self.code).starts_with(start)
    }
}

/// Whether a word gives the next program a variable, as `LEVEL=debug` does.
fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

/// Whether a line of code could be a command: it begins with what could be a program, and sets no key of a policy.
fn could_be_a_command(line: &str) -> bool {
    let command = Written::new(0, line, false);
    let program = command.program();
    let of_name = |c: char| c.is_ascii_alphanumeric() || "._/+-".contains(c);
    program.starts_with(|c: char| c.is_ascii_lowercase() || "/.".contains(c))
        && program.chars().all(of_name)
        && command.code.split(' ').nth(1) != Some("=")
}

/// What a block of code is.
#[derive(Clone, Copy, PartialEq)]
enum Block {
    /// Each line is a command.
    Commands,
    /// Lines that begin with `$` are commands; the others are answers, or anything else.
    Other,
}

/// The commands of a page, in blocks of code and in sentences, and how the blocks begin that are in `SHOWN`.
fn commands_and_shown(page: &str, text: &str) -> (Vec<Written>, Vec<(&'static str, &'static str)>) {
    let (mut commands, mut shown) = (Vec::new(), Vec::new());
    let (mut fenced, mut block, mut sentence) = (false, None, None::<(usize, String)>);
    let mut unended = false;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(language) = line.strip_prefix("```") {
            fenced = !fenced;
            block = (fenced && !["", "sh", "bash", "console"].contains(&language)).then_some(Block::Other);
            continue;
        }
        if let Some(code) = if fenced { Some(line) } else { line.strip_prefix("    ") } {
            sentence = None;
            let code = code.trim();
            if code.is_empty() || (block.is_none() && code.starts_with("# ")) {
                continue;
            }
            let kind = *block.get_or_insert_with(|| {
                let known = SHOWN.iter().find(|(of, begins)| *of == page && code.starts_with(begins));
                shown.extend(known.copied());
                if known.is_none() && could_be_a_command(code) { Block::Commands } else { Block::Other }
            });
            let command = code.strip_prefix("$ ").or((kind == Block::Commands).then_some(code));
            if unended {
                let last: &mut Written = commands.last_mut().expect("a line that goes on");
                last.code = format!("{} {}", last.code.trim_end_matches(" \\"), code);
            } else if let Some(command) = command.filter(|command| !command.starts_with('#')) {
                commands.push(Written::new(number, command, false));
            }
            unended = code.ends_with('\\') && (unended || command.is_some());
            continue;
        }
        block = None;
        if line.is_empty() {
            sentence = None;
            continue;
        }
        for (part, text) in line.split('`').enumerate() {
            if part > 0 {
                sentence = match sentence.take() {
                    Some((begun, code)) => {
                        commands.push(Written::new(begun, &code.replace("\\|", "|"), true));
                        None
                    }
                    None => Some((number, String::new())),
                };
            }
            if let Some((_, code)) = &mut sentence {
                code.push(' ');
                code.push_str(text);
            }
        }
    }
    commands.retain(|command| !command.is_inline || is_a_command_in_a_sentence(command));
    (commands, shown)
}

fn commands(page: &str, text: &str) -> Vec<Written> {
    commands_and_shown(page, text).0
}

/// Whether what a sentence quotes is a command: its program is known here or is one of this machine, or it has an option. Verbs of ours
/// without the program's name before them are held by `ratelimit-user/src/documentation.rs`.
fn is_a_command_in_a_sentence(quoted: &Written) -> bool {
    let Some(second) = quoted.code.split(' ').nth(1) else { return false };
    let program = quoted.program();
    if !could_be_a_command(&quoted.code) || verbs().iter().any(|verb| verb == program) {
        return false;
    }
    let begins = ELSEWHERE.iter().map(|one| one.begins).chain(BELOW);
    let known = begins.filter_map(|begins| begins.split(' ').next()).chain(RUN_HERE);
    second.starts_with('-') || known.into_iter().any(|known| known == program) || is_installed(program)
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.into_iter().any(|folder| folder.join(program).is_file())
}

/// The verbs of `ratelimit`, as its help lists them.
fn verbs() -> &'static [String] {
    static VERBS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let output = Command::new(binary("ratelimit")).arg("--help").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let verbs = listed.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
        let verbs = verbs.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next());
        // The help does not list the verb that only supervisors start.
        verbs.map(str::to_owned).chain(["front".to_owned()]).collect()
    });
    &VERBS
}

/// What a sentence takes for granted when it names a command that takes something back.
fn taken_for_granted(command: &str) -> Option<String> {
    const CHANGE: &str = "ratelimit limit set source.packets '3000 packets/s burst 6000'";
    match command {
        "ratelimit rollback" => Some(CHANGE.to_owned()),
        "ratelimit confirm" => Some(format!("{CHANGE}; ratelimit apply new.toml --confirm 2m")),
        _ => command.contains(" del ").then(|| command.replace(" del ", " add ")),
    }
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
        ("ADDRESS", "203.0.113.7"),
        ("IFACE", EDGE),
        ("user get NAME", "user get acme"),
        ("check FILE", "check policy.toml"),
        ("VERB", "block"),
        // The only attack that there was.
        ("attacks show 7", "attacks show 1"),
        ("eth0", EDGE),
        ("/etc/ratelimit.toml", "policy.toml"),
        ("/etc/ratelimit/policy.toml", "policy.toml"),
        // A capture of our own does not take the place of the one that other commands read.
        ("-w attack.pcap", "-w own.pcap"),
        ("attack.pcap", "flood.pcapng"),
        // What Wireshark shows in a window, tshark prints.
        ("--pcap - | wireshark -k -i -", "--for 1s --pcap - | tshark -n -r -"),
        ("systemd-sysusers /", "systemd-sysusers --root=root $PWD/root/"),
        // An answer that is no success is a failure of the command too.
        ("curl ", "curl --fail "),
        // In a mount namespace of its own, and of accounts a copy.
        ("mount -t", "unshare --mount mount -t"),
        ("adduser NAME ratelimit", ADDUSER),
        // This machine's journal is none of our business.
        ("journalctl ", "journalctl --directory=journal "),
    ] {
        example = example.replace(word, meant);
    }
    if example.starts_with("tcpdump ") {
        example = format!("timeout --preserve-status --signal=INT 1 {example} > /dev/null");
    }
    // Without a time they look until somebody interrupts them.
    if example == "ratelimit watch" {
        example.push_str(" --for 10s");
    }
    let is_look = ["watch", "suggest"].iter().any(|verb| example.contains(&format!("ratelimit {verb} ")));
    if is_look {
        // What is drafted from the interface must not take the place of the draft from the capture.
        example = example
            .replace(&format!("--iface {EDGE} > suggested.toml"), &format!("--iface {EDGE} > heard.toml"));
        for time in ["10s", "5s", "10m"] {
            example = example.replace(&format!("--for {time}"), "--for 1s");
        }
    }
    example
}

/// `adduser NAME ratelimit` where nothing but a copy of `/etc` is changed, and whether it made somebody a member.
const ADDUSER: &str = "unshare --mount sh -euc 'cp -a /etc etc; mount --bind etc /etc; groupadd --force ratelimit; \
    useradd ann; adduser ann ratelimit; id -nG ann | grep -w ratelimit'";

/// A program called `ratelimit` that speaks to the daemon of a host. Every user can execute it.
fn program(edge: &Edge, folder: &Path) {
    let (binary, state, pin) = (copy_of_binary(edge.dir()), edge.state(), edge.pin());
    let (binary, state, pin) = (binary.display(), state.display(), pin.display());
    let script = format!(
        "#!/bin/sh\ncase $1 in\ncheck|replay|completions|man|--*) exec {binary} \"$@\" ;;\n\
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
    in_shell(edge, &["sh", "-c", line])
}

/// A line of the documentation that is to end by itself, soon.
fn bounded(edge: &Edge, line: &str) -> Command {
    in_shell(edge, &["timeout", "60", "sh", "-c", line])
}

fn in_shell(edge: &Edge, words: &[&str]) -> Command {
    let folder = edge.dir().join("bin");
    let tools = repository().join("target/tools");
    let mut shell = edge.wire.on_edge(words[0]);
    let path = std::env::var("PATH").unwrap();
    shell.env("PATH", format!("{}:{path}:{}", folder.display(), tools.display()));
    shell.env_remove("SSH_CONNECTION").env_remove("SSH_CLIENT");
    shell.args(&words[1..]).current_dir(edge.dir());
    shell
}

/// What commands of the documentation find on a host, beside its policy: a capture, other policies, a root that the package was unpacked into.
fn furnish(edge: &Edge, policy: &str) {
    program(edge, &edge.dir().join("bin"));
    capture(edge.dir());
    for file in ["new.toml", "now.toml", "enforce.toml"] {
        fs::write(edge.dir().join(file), policy.replace("5000 packets/s", "4000 packets/s")).unwrap();
    }
    let users = edge.dir().join("root/usr/lib/sysusers.d");
    fs::create_dir_all(&users).unwrap();
    fs::create_dir_all(edge.dir().join("root/etc")).unwrap();
    let unit = repository().join("packaging/systemd/ratelimit.sysusers");
    fs::copy(unit, users.join("ratelimit.conf")).unwrap();
    fs::create_dir_all(edge.dir().join("journal")).unwrap();
}

/// What is to be said against how a command ended, if anything.
fn complaint(line: &str, output: &Output, may_lack_words: bool) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let is_fine = match output.status.code() {
        Some(0) => true,
        Some(1) => {
            let verb = line.split("ratelimit ").nth(1).and_then(|rest| rest.split(' ').next());
            FIND.iter().any(|(finds, _)| verb == Some(finds))
        }
        // In a sentence a verb stands without what it needs. An option that there is not is another complaint.
        Some(2) if may_lack_words => {
            said.contains("required arguments were not provided") || said.contains("<COMMAND>")
        }
        _ => false,
    };
    (!is_fine).then(|| format!("{line}: {}: {said}", output.status))
}

/// What becomes of the commands of all pages.
#[derive(Default)]
struct Plan {
    /// Commands that are run in order, each with its page.
    to_run: Vec<(String, Written)>,
    /// Commands that start a daemon.
    daemons: Vec<String>,
    /// Commands that no table has, with page and line.
    unknown: Vec<String>,
    /// Entries of the tables that no page has any more: the page, if the entry is about one, and how it begins.
    unused: Vec<(&'static str, &'static str)>,
}

/// Looks each command up in the tables. What stands in several sentences is taken once.
fn plan(pages: &[(String, String)]) -> Plan {
    let mut plan = Plan::default();
    plan.unused.extend(ELSEWHERE.iter().map(|one| one.begins).chain(BELOW).map(|begins| ("", begins)));
    plan.unused.extend(SHOWN);
    let mut in_sentences = Vec::new();
    for (page, text) in pages {
        let (commands, shown) = commands_and_shown(page, text);
        plan.unused.retain(|one| !shown.contains(one));
        for command in commands {
            if command.is_inline {
                if in_sentences.contains(&command.code) {
                    continue;
                }
                in_sentences.push(command.code.clone());
            }
            let mut others = ELSEWHERE.iter().map(|one| one.begins).chain(BELOW);
            if let Some(start) = others.find(|start| command.begins(start)) {
                plan.unused.retain(|other| *other != ("", start));
                if start == BELOW[0] {
                    plan.daemons.push(command.code);
                }
            } else if RUN_HERE.contains(&command.program()) {
                plan.to_run.push((page.clone(), command));
            } else {
                let Written { line, code, .. } = &command;
                plan.unknown.push(format!(
                    "{page}, line {line}: `{code}`: no table has `{}`: run it here, or say who does and why not here",
                    command.program()
                ));
            }
        }
    }
    plan
}

#[test]
fn every_command_of_the_documentation_runs_here_or_in_a_test_that_is_named() {
    let pages: Vec<(String, String)> = pages().into_iter().map(|page| (page.clone(), read(&page))).collect();
    let Plan { to_run, daemons, unknown, unused } = plan(&pages);
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    assert!(unused.is_empty(), "no page has {unused:?}");
    let edge = edge_with_sources(&["10.99.0.66"]);
    let http = edge.dir().join("http.sock").display().to_string();
    let policy = POLICY.replace("HTTP_SOCKET", &http);
    edge.write_policy(&policy);
    // Of the namespace that asks.
    let syn_cookies = || fs::read_to_string("/proc/sys/net/ipv4/tcp_syncookies").unwrap();
    let machine = syn_cookies();
    let daemon = Daemon::start(edge.run_command());
    furnish(&edge, &policy);
    // Pages show the report of an attack.
    let attack = flood(&edge, "10.99.0.66", EDGE_V4, 3_000, 4.0);
    daemon.wait_for_log("attack 1 began: ");
    done(attack);
    // Whoever listens hears somebody.
    let _sender = Running(flood(&edge, "10.99.0.66", EDGE_V4, 50, 600.0));
    let start = |line: &str| -> Child {
        let mut shell = bounded(&edge, line);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (mut wrong, mut looking, mut last, mut page_before) = (Vec::new(), Vec::new(), Vec::new(), "");
    let judge = |(page, command, line, child): (&String, &Written, String, Child)| {
        let output = child.wait_with_output().unwrap();
        let complaint = complaint(&line, &output, command.is_inline)?;
        Some(format!("{page}, line {}: {complaint}", command.line))
    };
    for (page, command) in &to_run {
        if page != page_before {
            // What one page left to be confirmed is not in the way of the next.
            start("ratelimit confirm").wait().unwrap();
            page_before = page;
        }
        if command.code.starts_with("ratelimit detach") {
            last.push((page, command));
            continue;
        }
        let line = example(&command.code).replace("/run/ratelimit/http.sock", &http);
        if let Some(before) = taken_for_granted(&line).filter(|_| command.is_inline) {
            start(&before).wait().unwrap();
        }
        let started = (page, command, line.clone(), start(&line));
        if line.contains(" --for 1s") || line.starts_with("timeout ") {
            looking.push(started);
        } else {
            wrong.extend(judge(started));
        }
    }
    wrong.extend(looking.into_iter().filter_map(judge));
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), daemon.log());
    assert!(to_run.len() >= 130, "{} commands ran", to_run.len());
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
        before = Daemon::start(shell(&edge, &format!("exec {}", example(&line))));
    }
    // Nothing is enforced after these.
    assert!(!last.is_empty());
    for (page, command) in last {
        let started = (page, command, command.code.clone(), start(&command.code));
        assert_eq!(judge(started), None);
    }
}

#[test]
fn a_command_that_no_table_has_is_named_with_its_page_and_line() {
    let page = "# Title\nA sentence with `fallocate -l 1 x`, `rm there`, a key `mode = \"monitor\"` and words `so so`.\n\n    \
        nosuch --option\n\n    ratelimit status\n";
    let plan = plan(&[("docs/page.md".to_owned(), page.to_owned())]);
    let beginnings: Vec<&str> =
        plan.unknown.iter().filter_map(|one| one.split(": no table").next()).collect();
    assert_eq!(
        beginnings,
        [
            "docs/page.md, line 2: `fallocate -l 1 x`",
            "docs/page.md, line 2: `rm there`",
            "docs/page.md, line 4: `nosuch --option`"
        ]
    );
    assert_eq!(plan.to_run.len(), 1);
}

#[test]
fn commands_are_found_in_blocks_after_dollars_over_two_lines_and_in_sentences() {
    let page = "Say `sudo ratelimit\nstatus` or `LEVEL=x cargo test -p y`, in a table `ratelimit top [--by a\\|b]`.\n\n    $ curl -d 1 \\\n        \
        there\n    HTTP/1.1 200 OK\n\n```toml\n[source]\n```\n\n    sudo sysctl -w a=1   # as root\n    # no command\n";
    let found = commands("docs/page.md", page).into_iter().map(|one| (one.line, one.is_inline, one.code));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            (1, true, "ratelimit status".to_owned()),
            (2, true, "cargo test -p y".to_owned()),
            (2, true, "ratelimit top [--by a|b]".to_owned()),
            (4, false, "curl -d 1 there".to_owned()),
            (12, false, "sysctl -w a=1 # as root".to_owned()),
        ]
    );
}

#[test]
fn only_verbs_that_are_said_to_find_something_may_exit_with_1() {
    let page = read("docs/operating.md");
    for (verb, says) in FIND {
        assert!(page.contains(says), "docs/operating.md does not say of {verb}: {says:?}");
    }
    let ended = |code: &str| Command::new("sh").args(["-c", &format!("exit {code}")]).output().unwrap();
    assert_eq!(complaint("ratelimit diff new.toml", &ended("1"), false), None);
    for (line, code) in [("ratelimit attacks show 7", "1"), ("ratelimit diff new.toml", "2"), ("curl x", "1")]
    {
        assert!(complaint(line, &ended(code), true).is_some(), "{line} may exit with {code}");
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
    let page = read("docs/integrations/envoy.md");
    edge.write_policy(&shown_policy(&page));
    let lines = commands("docs/integrations/envoy.md", &page);
    let [serve, envoy, ask] = [1, 2, 3].map(|number| {
        let line = lines.iter().find(|line| line.code.starts_with(BELOW[number]));
        &*line.unwrap_or_else(|| panic!("no line begins with {:?}: {lines:?}", BELOW[number])).code
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
