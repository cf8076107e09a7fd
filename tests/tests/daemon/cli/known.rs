//! `ratelimit known`: clients who come first when a total is spent, how they outlive the maps, and what other verbs say of them.

use std::{fs, io::Write as _, os::unix::fs::MetadataExt as _, process::Stdio};

use ratelimit_tests::{
    answer::{assert_answer, assert_refused, stderr, stdout},
    daemon::{Daemon, Edge, binary},
    netns::EDGE_V4,
    redis::wait_for,
    traffic::{edge_with_sources, flood, sent, socket_address},
};
use serde_json::{Value, json};

const POLICY: &str = "[source]\nlimits = [\"5000 packets/s\"]\n[host]\ntotal = [\"100 packets/s\"]\n\
    [[service]]\nname = \"dns\"\nmatch = { protocol = \"udp\", ports = [53] }\ntotal = [\"2000 packets/s\"]\n";

const CLIENTS: &str =
    "# of another host\ndns 192.0.2.1 5 0\n\n- 192.0.2.1 0.5 86400\ndns 2001:db8:7:1::5 20 3600\n";

/// What is remembered of an address: service, state, average and claim in packets each second, and the age in seconds.
fn remembered(edge: &Edge, address: &str) -> Vec<(Value, Value, f64, f64, u64)> {
    let shown = edge.json(&["known", "show", address]);
    let services = shown["services"].as_array().unwrap().iter();
    let number = |at: &Value, field: &str| at[field].as_f64().unwrap();
    let of_service = |at: &Value| {
        assert_eq!(at["claim_used_percent"], 0, "nothing is short");
        (
            at["service"].clone(),
            at["state"].clone(),
            number(at, "packets_per_second"),
            number(at, "claim_packets_per_second"),
            number(at, "seconds_since_served") as u64,
        )
    };
    services.map(of_service).collect()
}

/// Asserts that all clients of the file are remembered as it says.
fn assert_all_are_known(edge: &Edge, when: &str) {
    let [(dns, state, average, claim, age), (none, _, slow, _, old)] = &remembered(edge, "192.0.2.1")[..]
    else {
        panic!("{when}: {:?}", remembered(edge, "192.0.2.1"))
    };
    assert_eq!((dns, state, none), (&json!("dns"), &json!("known"), &json!(null)), "{when}");
    assert!((4.95..=5.0).contains(average) && *claim == average * 4.0, "{when}: {average}, {claim}");
    assert!(*age <= 3 * 69 && (86_400 - 69..86_400 + 3 * 69).contains(old), "{when}: {age} s, {old} s");
    // A day without packets has halved it three times and a half.
    assert!((0.04..0.1).contains(slow), "{when}: {slow}");
    // Another address of the same /64.
    let by_prefix = remembered(edge, "2001:db8:7:1:9::9");
    assert_eq!(by_prefix.len(), 1, "{when}");
    assert!((17.0..=20.0).contains(&by_prefix[0].2), "{when}: {by_prefix:?}");
    assert_eq!(edge.json(&["known", "show"])["clients"], 3, "{when}");
}

/// Takes away what the kernel has, as a reboot does.
fn reboot(edge: &Edge) -> Daemon {
    fs::remove_dir_all(edge.pin()).unwrap();
    edge.start_again()
}

#[test]
fn known_clients_are_imported_shown_kept_and_forgotten() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    let file = edge.dir().join("clients.txt");
    let file = file.to_str().unwrap();
    fs::write(file, CLIENTS).unwrap();
    let imported = edge.cli(&["known", "import", file]);
    assert!(imported.status.success(), "{}", stderr(&imported));
    assert_eq!(stdout(&imported), format!("3 clients of {file} are known\n"));
    daemon.wait_for_log("clients.txt are known, by uid 0");
    assert_all_are_known(&edge, "imported");

    fs::write(file, format!("dns 192.0.2.9 5 0\n{}", CLIENTS.replace("dns 2001", "web 2001"))).unwrap();
    let refused = edge.cli(&["known", "import", file]);
    assert_refused(
        &refused,
        2,
        &["clients.txt:6: the policy has no service \"web\"", "nothing was imported"],
    );
    assert!(remembered(&edge, "192.0.2.9").is_empty(), "nothing half done");
    let all = edge.json(&["known", "show"]);
    assert_eq!((&all["clients"], &all["in_filter"]), (&json!(3), &json!(3)));
    let (host, dns) = (&all["totals"][0], &all["totals"][1]);
    assert_eq!((&host["service"], &dns["service"]), (&json!(null), &json!("dns")));
    let fit = |total: &Value| total["claims_fit"].as_f64().unwrap();
    // One /64 in 128 counts for a service.
    assert!((0.9..1.0).contains(&fit(host)) && (18.0..90.0).contains(&fit(dns)), "{all}");
    let shown = stdout(&edge.cli(&["known", "show"]));
    assert!(shown.contains("\ntotal      service dns, 2000 packets/s: all claims fit "), "{shown}");

    let exported = edge.cli(&["known", "export"]);
    assert!(exported.status.success());
    let mut lines: Vec<String> = stdout(&exported).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("- 192.0.2.1 0.49") && lines[1].starts_with("dns 192.0.2.1 4.9"),
        "{lines:?}"
    );
    assert!(
        stderr(&exported).starts_with("2 clients; 1 more are left out, of IPv6"),
        "{}",
        stderr(&exported)
    );

    // What was exported may be imported again, and changes nothing.
    let mut again = edge.cli_command(&["known", "import", "-"]);
    let mut again = again.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    again.stdin.take().unwrap().write_all(&exported.stdout).unwrap();
    assert!(again.wait().unwrap().success());
    assert_all_are_known(&edge, "imported again");

    daemon.kill_9();
    let daemon = edge.start_again();
    assert_all_are_known(&edge, "kill -9");
    let saved = edge.state().join("known-clients");
    fs::remove_file(&saved).unwrap();
    assert!(daemon.terminate().0.success());
    assert_eq!(fs::metadata(&saved).unwrap().mode() & 0o7777, 0o600);
    assert!(fs::metadata(&saved).unwrap().len() < 400, "only words in use");
    let daemon = reboot(&edge);
    // A packet of the link itself may have made a candidate.
    daemon.wait_for_log(" clients are remembered that were saved ");
    assert_all_are_known(&edge, "rebooted");
    assert_eq!(edge.json(&["known", "show"])["in_filter"], 3);

    let forgotten = edge.cli(&["known", "forget", "192.0.2.1"]);
    assert_eq!(stdout(&forgotten), "192.0.2.1 is forgotten at dns, packets of no service\n");
    assert_refused(
        &edge.cli(&["known", "forget", "192.0.2.1"]),
        1,
        &["192.0.2.1 is not remembered; nothing was changed"],
    );
    // A reboot without a SIGTERM does not bring it back.
    daemon.kill_9();
    let daemon = reboot(&edge);
    assert!(remembered(&edge, "192.0.2.1").is_empty());
    assert_eq!(remembered(&edge, "2001:db8:7:1::1").len(), 1);

    assert!(daemon.terminate().0.success());
    let mut bytes = fs::read(&saved).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&saved, bytes).unwrap();
    let daemon = reboot(&edge);
    daemon.wait_for_log("known-clients is not used: it is not what was written");
    let status = edge.json(&["status"]);
    let kinds: Vec<_> =
        status["warning_details"].as_array().unwrap().iter().map(|warning| &warning["kind"]).collect();
    assert!(kinds.contains(&&json!("known_clients")), "{status}");
    assert_eq!(edge.json(&["known", "show"])["clients"], 0);
}

/// Imports the clients of a file.
fn import(edge: &Edge, clients: &str) {
    let file = edge.dir().join("clients.txt");
    fs::write(&file, clients).unwrap();
    let imported = edge.cli(&["known", "import", file.to_str().unwrap()]);
    assert!(imported.status.success(), "{}", stderr(&imported));
}

#[test]
fn known_clients_move_to_maps_of_another_layout() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    import(&edge, CLIENTS);
    assert!(daemon.terminate().0.success());
    edge.rename_layouts(0).unwrap();
    let daemon = edge.start_again();
    daemon.wait_for_log("maps of another layout found (abi 0");
    assert_all_are_known(&edge, "another build");
    daemon.kill_9();
    let _daemon = edge.start(&POLICY.replacen("limits", "table_entries = 2000\nlimits", 1));
    assert_all_are_known(&edge, "a table of another size");
}

/// Clients are remembered by hashes, and each host has its own secret for them.
#[test]
fn clients_saved_by_another_host_replace_none_in_the_kernel() {
    const OWN: &str = "192.0.2.77";
    let [edge, other] = [Edge::new(), Edge::new()];
    let daemon = other.start(POLICY);
    import(&other, CLIENTS);
    assert!(daemon.terminate().0.success());
    let daemon = edge.start(POLICY);
    import(&edge, &format!("dns {OWN} 5 0\n"));
    assert!(daemon.terminate().0.success());
    let file = |edge: &Edge| edge.state().join("known-clients");
    fs::copy(file(&other), file(&edge)).unwrap();
    let daemon = edge.start_again();
    assert_eq!(remembered(&edge, OWN).len(), 1, "what is in the kernel counts");
    assert!(remembered(&edge, "192.0.2.1").is_empty());
    daemon.kill_9();
    let _daemon = reboot(&edge);
    assert_all_are_known(&edge, "by the other host's secret");
    assert!(remembered(&edge, OWN).is_empty());
}

const GAME: &str = "[source]\nlimits = [\"5000 packets/s\"]\n\
    [[service]]\nname = \"game\"\nmatch = { protocol = \"udp\", ports = [4711] }\ntotal = [\"500 packets/s\"]\nnewcomers = \"1/4\"\n\
    [attacks]\nbegin = \"500 packets/s\"\nend_after = \"2s\"\n";

/// Packets of known clients that came first, and that were refused.
fn counted(answer: &Value) -> [u64; 2] {
    ["known_admitted_packets", "known_refused_packets"].map(|field| answer[field].as_u64().unwrap())
}

#[test]
fn verbs_tell_of_known_clients_beside_a_forged_flood() {
    const CLIENT: &str = "10.99.7.1";
    let edge = edge_with_sources(&[CLIENT]);
    let daemon = edge.start(GAME);
    import(&edge, &format!("game {CLIENT} 30 0\n"));
    assert_answer(&edge.cli(&["status"]), 0, &["service game leaves them 375 packets/s beside a flood, 12."]);
    let known = edge.json(&["explain", CLIENT])["known"][0].clone();
    assert_eq!((&known["service"], &known["newcomers"]), (&json!("game"), &json!("1/4")), "{known}");
    let shown = &edge.json(&["known", "show", CLIENT])["services"][0];
    for field in ["state", "packets_per_second", "claim_packets_per_second"] {
        assert_eq!(known["client"][field], shown[field], "{field}: {known}");
    }
    assert_eq!(edge.json(&["explain", "192.0.2.1"])["known"][0]["client"], Value::Null);
    assert_answer(&edge.cli(&["explain", CLIENT]), 0, &["service game: a known client, served 29."]);
    let share = "service game: not a known client; shares 1/4 of the total";
    assert_answer(&edge.cli(&["explain", "192.0.2.1"]), 0, &[share]);

    let forge = ["forge", "--kind", "udp", "--within", "16.0.0.0/4", "--pps", "8000", "--for", "60"];
    let mut forger = edge
        .wire
        .in_net(binary("traffic"))
        .args(forge)
        .args(["--to", &socket_address(EDGE_V4)])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let asking = flood(&edge, CLIENT, EDGE_V4, 30, 10.0);
    wait_for("its packets to come first", || {
        (counted(&edge.json(&["stats", "--for", "1s"]))[0] > 30).then_some(())
    });
    let stats = edge.json(&["stats", "--for", "1s"]);
    let now = stats["rates"]["known_admitted_packets_per_second"].as_f64().unwrap();
    assert!((5.0..=60.0).contains(&now), "{stats}");
    wait_for("top to mark it", || {
        let view = edge.json(&["top", "--once"]);
        let sources = view["sources"].as_array().unwrap();
        let marked: Vec<_> = sources.iter().filter(|one| one["known"] == true).collect();
        assert!(marked.iter().all(|one| one["source"] == CLIENT), "{marked:?}");
        (marked.len() == 1).then_some(())
    });
    forger.kill().unwrap();
    forger.wait().unwrap();
    daemon.wait_for_log("attack 1 ended after ");
    let sent = sent(asking);
    let [first, refused] = counted(&edge.json(&["stats"]));
    assert!(first > 50 && first + refused <= sent, "{first} first, {refused} refused of {sent}");
    assert_eq!(counted(&edge.json(&["status"])), [first, refused]);
    let report = &edge.json(&["attacks", "show", "1"])["attack"];
    let [in_attack, _] = counted(report);
    assert!(in_attack > 50 && in_attack <= first, "{in_attack} of {first}");
    let words = format!("known clients: {in_attack} packets came first, ");
    assert_answer(&edge.cli(&["attacks", "show", "1"]), 0, &[&words]);
    assert!(daemon.log().contains(&format!("; {words}")), "{}", daemon.log());

    // More than the total leaves them.
    import(&edge, "game 192.0.2.9 1000 0\n");
    let warning = "known clients of service game are served 10";
    assert_answer(
        &edge.cli(&["status"]),
        0,
        &["WARNING    ", warning, "beside a flood (375): then they get 3"],
    );
    daemon.kill_9();
    assert_eq!(counted(&edge.json(&["stats"])), [first, refused], "from the pins");
}
