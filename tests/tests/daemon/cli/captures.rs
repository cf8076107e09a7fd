//! `ratelimit replay` and `ratelimit suggest` with files: answers, pictures, mistakes. No root, no daemon.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Stdio,
    thread,
};

use ratelimit_tests::{
    answer::{assert_refused, stdout},
    bpffs::Scratch,
    daemon::Edge,
    frames::{Ipv4, SYN},
    netns::{EDGE, EDGE_V4},
    traffic::{PORT, edge_with_sources, flood, sent},
};
use ratelimit_user::capture::{
    LinkType,
    write::{PacketToWrite, PcapngWriter},
};
use serde_json::Value;

use super::{json::differences, ratelimit};

const FLOOD: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 66);
const POLICY: &str = "[source]\nlimits = [\"100 packets/s burst 100\", \"20 syns/s burst 20\"]\nladder = false\n\
    [[service]]\nname = \"dns\"\nmatch = { protocol = \"udp\", ports = [53] }\nper_source = [\"50 packets/s burst 50\"]\n";

/// Ten seconds: forty sources that ask a name server now and then and open connections, and one that floods it from the fourth second on.
pub(super) fn capture(dir: &Path) -> PathBuf {
    let mut packets = Vec::new();
    for source in 0..40_u64 {
        let from = Ipv4::from([198, 51, 100, source as u8]);
        for at in 0..20 {
            packets.push((at * 500_000_000 + source * 1_000_000, from.udp_frame(40)));
        }
        packets.push((source * 2_000_000, from.tcp_frame(SYN)));
    }
    for at in 0..6_000 {
        packets.push((4_000_000_000 + at * 1_000_000, Ipv4::from(FLOOD).udp_frame(40)));
    }
    packets.sort();
    let mut file = Vec::new();
    let mut writer = PcapngWriter::new(&mut file).unwrap();
    let interface = writer.interface("eth0", LinkType::Ethernet).unwrap();
    for (at_ns, bytes) in &packets {
        let unix_ns = 1_790_000_000_000_000_000 + at_ns;
        let len = bytes.len() as u32;
        writer.packet(&PacketToWrite { interface, unix_ns, bytes, len, comment: "" }).unwrap();
    }
    let path = dir.join("flood.pcapng");
    fs::write(&path, file).unwrap();
    path
}

fn written(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn json(words: &[&str]) -> Value {
    let output = ratelimit(&[words, &["--output", "json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_replay_says_who_was_refused_when_and_by_which_limit_and_what_differs_from_another_policy() {
    let scratch = Scratch::new();
    let file = capture(scratch.dir());
    let file = file.to_str().unwrap();
    let policy = written(scratch.dir(), "policy.toml", POLICY);
    let lenient = written(
        scratch.dir(),
        "lenient.toml",
        &POLICY
            .replace("50 packets/s burst 50", "600 packets/s burst 600")
            .replace("100 packets/s burst 100", "2000 packets/s"),
    );
    let strict = written(
        scratch.dir(),
        "strict.toml",
        &POLICY.replace("50 packets/s burst 50", "1 packets/s burst 1"),
    );
    let plot = scratch.dir().join("flood.svg");
    let words = ["replay", file, "--policy", &policy, "--plot", plot.to_str().unwrap()];
    let answer = json(&[&words[..], &["--against", &lenient]].concat());
    let found = differences(&["replay"], "`replay`", &answer, true);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let report = &answer["policy"];
    assert_eq!(report["totals"]["offered_packets"], 6_840);
    // 50 at once and 50 a second for six seconds.
    let passed = report["sources"][0]["passed_packets"].as_u64().unwrap();
    assert!((349..=351).contains(&passed), "{report}");
    assert_eq!(report["sources"][0]["source"], FLOOD.to_string());
    assert_eq!(report["sources"][0]["limit"], "service.dns.per_source.packets");
    assert_eq!(report["refusals"][0]["rates"][0], "50 packets/s burst 50");
    assert_eq!((&report["sources_seen"], &report["sources_refused"]), (&41.into(), &1.into()));
    assert!(report["first_refused"].as_str().unwrap().starts_with("2026-09-21T14:13:24."), "{report}");
    let rows = report["series"]["rows"].as_array().unwrap();
    let refused: Vec<bool> = rows.iter().map(|row| row["refused_packets"].as_u64().unwrap() > 0).collect();
    assert_eq!(refused, [false, false, false, false, true, true, true, true, true, true]);
    // The other lets 600 a second pass of the flood, and nobody else is concerned.
    let differences = &answer["differences"];
    assert!(differences["refused_by_policy_only_packets"].as_u64() > Some(2_900), "{differences}");
    assert!(differences["refused_by_both_packets"].as_u64() > Some(1_500), "{differences}");
    assert_eq!(differences["refused_by_policy_only_sources"], 0);
    let picture = fs::read_to_string(&plot).unwrap();
    assert!(picture.starts_with("<svg ") && picture.contains("passed, lenient.toml"), "{picture}");

    let answer = json(&["replay", file, "--policy", &policy, "--against", &strict]);
    assert_eq!(answer["differences"]["refused_by_against_only_sources"], 40, "{answer}");
    assert_eq!(answer["differences"]["refused_by_against_only"][0]["source"], "198.51.100.0");

    let text = stdout(&ratelimit(&["replay", file, "--policy", &policy]));
    for part in [
        "flood.pcapng: pcapng, Ethernet, 6840 packets, ",
        "limit_packets (dropped)",
        "service.dns.per_source.packets",
        "50 packets/s burst 50",
        "203.0.113.66 ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The host's own addresses are left out if they are named.
    let answer = json(&["replay", file, "--policy", &policy, "--ours", "203.0.113.0/24"]);
    assert_eq!(
        (&answer["capture"]["outgoing_packets"], &answer["capture"]["packets"]),
        (&6_000.into(), &840.into())
    );
    assert_eq!(answer["policy"]["totals"]["dropped_packets"], 0);
}

#[test]
fn on_trial_a_replay_drops_nothing_and_says_what_it_would() {
    let scratch = Scratch::new();
    let file = capture(scratch.dir());
    let policy = written(scratch.dir(), "trial.toml", &format!("mode = \"monitor\"\n{POLICY}"));
    let report = json(&["replay", file.to_str().unwrap(), "--policy", &policy])["policy"].take();
    assert_eq!((&report["mode"], &report["totals"]["dropped_packets"]), (&"monitor".into(), &0.into()));
    assert_eq!(report["refusals"][0]["fate"], "would_drop");
    assert!(report["totals"]["refused_and_passed_packets"].as_u64() > Some(5_600), "{report}");
}

#[test]
fn mistakes_in_files_are_sentences_and_exit_with_2() {
    let scratch = Scratch::new();
    let file = capture(scratch.dir());
    let whole = fs::read(&file).unwrap();
    let policy = written(scratch.dir(), "policy.toml", POLICY);
    let bad = scratch.dir().join("bad.pcapng");
    let bad = bad.to_str().unwrap();
    for verb in [&["replay", bad, "--policy", &policy][..], &["suggest", bad]] {
        fs::write(bad, &whole[..whole.len() - 7]).unwrap();
        assert_refused(&ratelimit(verb), 2, &["bad.pcapng: at byte ", "the file ends after"]);
        fs::write(bad, b"GIF89a").unwrap();
        assert_refused(&ratelimit(verb), 2, &["at byte 0: ", "neither pcap nor pcapng"]);
        fs::remove_file(bad).unwrap();
        assert_refused(&ratelimit(verb), 2, &["cannot read the capture ", "No such file"]);
    }
    let file = file.to_str().unwrap();
    assert_refused(&ratelimit(&["replay", file]), 2, &["--policy"]);
    let wrong = written(scratch.dir(), "wrong.toml", "[source]\nlimits = [\"10 parsecs/s\"]\n");
    assert_refused(&ratelimit(&["replay", file, "--policy", &wrong]), 2, &["wrong.toml:2:"]);
    let plot = ["replay", file, "--policy", &policy, "--plot", "/nowhere/at/all.svg"];
    assert_refused(&ratelimit(&plot), 2, &["cannot write the picture /nowhere/at/all.svg"]);
    assert_refused(&ratelimit(&["suggest", file, "--for", "10s"]), 2, &["--for"]);
}

#[test]
fn a_suggestion_is_a_policy_on_trial_that_hits_those_who_stand_out_and_says_whom() {
    let scratch = Scratch::new();
    let file = capture(scratch.dir());
    let file = file.to_str().unwrap();
    let answer = json(&["suggest", file]);
    let found = differences(&["suggest"], "`suggest`", &answer, true);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let limit = |name: &str| {
        let limits = answer["limits"].as_array().unwrap();
        limits.iter().find(|row| row["limit"] == name).unwrap_or_else(|| panic!("{name}: {answer}")).clone()
    };
    let dns = limit("service.dns.per_source.packets");
    assert_eq!(
        dns["rates_per_second"],
        serde_json::json!({ "sources": 41, "p50": 2, "p99": 1000, "p99_9": 1000, "max": 1000 })
    );
    assert_eq!((&dns["sources_hit"], &dns["examples"]), (&1.into(), &serde_json::json!([FLOOD.to_string()])));
    assert_eq!(dns["rate"], "20 packets/s burst 40");
    assert!(dns["packets_hit"].as_u64() > Some(5_000), "{dns}");
    assert_eq!(limit("service.http.per_source.packets")["sources_hit"], 0);
    assert_eq!(limit("source.syns")["rate"], "10 syns/s burst 20");
    // The text is the policy itself, `check` takes it, and a replay of it says the numbers that are in it.
    let policy = written(scratch.dir(), "suggested.toml", &stdout(&ratelimit(&["suggest", file])));
    assert_eq!(fs::read_to_string(&policy).unwrap(), answer["policy"].as_str().unwrap());
    let checked = json(&["check", &policy]);
    assert_eq!((&checked["ok"], &checked["warnings"]), (&true.into(), &serde_json::json!([])), "{checked}");
    let replayed = json(&["replay", file, "--policy", &policy])["policy"].take();
    assert_eq!((&replayed["mode"], &replayed["sources_refused"]), (&"monitor".into(), &1.into()));
    let refused: u64 =
        answer["limits"].as_array().unwrap().iter().map(|row| row["packets_hit"].as_u64().unwrap()).sum();
    assert_eq!(replayed["totals"]["refused_and_passed_packets"], refused);
    // With a policy, its services are the ones.
    let known = written(
        scratch.dir(),
        "known.toml",
        "[source]\nlimits = [\"9 packets/s\"]\n[[service]]\nname = \"names\"\nmatch = { protocol = \"udp\", ports = [\"50-60\"] }\ntotal = [\"9 packets/s\"]\n",
    );
    let text = stdout(&ratelimit(&["suggest", file, "--policy", &known]));
    assert!(
        text.contains("name = \"names\"\nmatch = { protocol = \"udp\", ports = [\"50-60\"] }\n")
            && !text.contains("http"),
        "{text}"
    );
}

#[test]
fn a_suggestion_comes_from_what_a_daemon_on_trial_lets_pass() {
    let (honest, bad) = ("10.99.0.5", "10.99.0.66");
    let edge: Edge = edge_with_sources(&[honest, bad]);
    let _daemon = edge.start("mode = \"monitor\"\n[source]\nlimits = [\"10 packets/s\"]\n");
    let running = [flood(&edge, honest, EDGE_V4, 20, 3.0), flood(&edge, bad, EDGE_V4, 4_000, 3.0)];
    let output = edge.cli(&["suggest", "--for", "2s", "--output", "json"]);
    running.into_iter().for_each(|one| assert!(sent(one) > 0));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains(&format!("listening to {EDGE} for 2 s")), "{said}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!said.contains("enforces"), "{said}");
    let limits = answer["limits"].as_array().unwrap();
    let service = format!("service.udp-{PORT}.per_source.packets");
    let service =
        limits.iter().find(|row| row["limit"] == service.as_str()).unwrap_or_else(|| panic!("{answer}"));
    assert_eq!(
        (&service["sources_hit"], &service["examples"]),
        (&1.into(), &serde_json::json!([bad])),
        "{answer}"
    );
    let rate: u64 = service["rate"].as_str().unwrap().split(' ').next().unwrap().parse().unwrap();
    // Twice what the honest one sent, not what the other did.
    assert!((20..=100).contains(&rate), "{service}");
}

#[test]
fn packets_that_the_kernel_has_joined_count_as_many_as_were_on_the_wire() {
    const BYTES: usize = 3_000_000;
    let edge = edge_with_sources(&["10.99.0.2"]);
    let listener = edge.wire.as_edge(|| TcpListener::bind((EDGE_V4, 0)).expect("an address"));
    let port = listener.local_addr().expect("its address").port();
    let mut listening = edge.cli_command(&["suggest", "--iface", EDGE, "--for", "3s", "--output", "json"]);
    let mut listening =
        listening.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start to listen");
    // The command says that it listens.
    let mut told = BufReader::new(listening.stderr.take().expect("stderr"));
    told.read_line(&mut String::new()).expect("a line");
    let received = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        io::copy(&mut stream, &mut io::sink()).expect("everything")
    });
    edge.wire.as_net(|| {
        let mut stream = TcpStream::connect((EDGE_V4, port)).expect("connect");
        stream.write_all(&vec![7; BYTES]).expect("send");
    });
    assert_eq!(received.join().expect("a count"), BYTES as u64);
    let output = listening.wait_with_output().expect("a suggestion");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let observed = answer["observed"].as_str().expect("a sentence");
    let words: Vec<&str> = observed.split_whitespace().collect();
    let at = words.iter().position(|word| word.starts_with("packets")).expect("a number of packets");
    let packets: usize = words[at - 1].parse().expect("a number");
    // A veth has 1500 bytes; a little more for the handshake, its end, and segments that are not full.
    let least = BYTES / 1_460;
    assert!((least..least + least / 4 + 50).contains(&packets), "{observed}, at least {least}");
}
