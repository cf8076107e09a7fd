//! Policies of a hundred thousand prefixes: what a change writes, what it leaves alone, and what the packets meet meanwhile.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Output},
};

use aya::{
    Pod,
    maps::{Array, IterableMap as _, LpmTrie, Map, MapData, lpm_trie::Key},
};
use ratelimit_common::abi::{
    LimitSet, ListEntry, Policy,
    list::{FOREVER_NS, MAX_LISTED},
    names,
    user::MAX_USERS,
};
use ratelimit_tests::{
    answer::stderr,
    daemon::{Daemon, Edge},
    netns::{EDGE, EDGE_V4},
    policies::{prefixes, users},
    traffic::{Sink, edge_with_sources, flood, sent},
};
use ratelimit_user::{
    compile::lists::{Lists, Prefix},
    dataplane::pin::{Layout, PinDir},
};

const KEPT: &str = "10.99.0.66";
const GOOD: &str = "10.99.0.2";
/// What the kept user may send.
const BUDGET: u64 = 300;
const ENTRIES: u32 = 100_000;

/// A user with little, whatever else is in the policy.
fn policy(others: &str) -> String {
    format!(
        "[source]\nlimits = [\"1000000 packets/s\"]\n{others}\n[[user]]\nname = \"kept\"\nsources = [\"{KEPT}\"]\n\
         network = [\"{BUDGET} packets/day\"]\n"
    )
}

fn apply(edge: &Edge, text: &str) -> Output {
    let path = edge.dir().join("next.toml");
    fs::write(&path, text).unwrap();
    edge.cli(&["apply", path.to_str().unwrap()])
}

/// What it said, of an apply that must succeed.
fn applied(edge: &Edge, text: &str) -> String {
    let output = apply(edge, text);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn trie<const N: usize>(edge: &Edge, name: &str) -> LpmTrie<MapData, [u8; N], ListEntry> {
    let pinned = PinDir::new(edge.pin()).map(Layout::current(262_144), name);
    Map::LpmTrie(MapData::from_pin(pinned).unwrap()).try_into().unwrap()
}

/// Leaves what a daemon leaves that is killed after it has pinned the next inner maps of an array and before the array refers to them. They are empty, so that whoever
/// takes them for those in force has none.
fn pin_next<V: Pod>(edge: &Edge, array: &str, places: &[[&str; 2]], entries: u32) {
    let path = |name: &str| PinDir::new(edge.pin()).map(Layout::current(262_144), name);
    let numbers: Array<MapData, u32> =
        Map::Array(MapData::from_pin(path(array)).unwrap()).try_into().unwrap();
    let mut left = 0;
    for (index, places) in (0..).zip(places) {
        let Ok(in_force) = numbers.get(&index, 0) else { continue };
        let is_in_force = |name: &&&str| {
            MapData::from_pin(path(name)).is_ok_and(|map| map.info().unwrap().id() == in_force)
        };
        assert_eq!(places.iter().filter(is_in_force).count(), 1, "{array}: {places:?}");
        let next = path(places.iter().find(|name| !is_in_force(name)).unwrap());
        let _absent = fs::remove_file(&next);
        Array::<MapData, V>::create(entries, 0).unwrap().map().pin(&next).unwrap();
        left += 1;
    }
    assert_ne!(left, 0, "{array} refers to something");
}

/// What the kernel has, entry by entry.
fn in_kernel(edge: &Edge) -> Lists {
    let v4 = trie(edge, names::LISTS_V4);
    let v4 = v4
        .iter()
        .map(|entry| entry.map(|(key, value)| (Prefix::from_v4_key(key.prefix_len(), key.data()), value)));
    let v6 = trie(edge, names::LISTS_V6);
    let v6 = v6
        .iter()
        .map(|entry| entry.map(|(key, value)| (Prefix::from_v6_key(key.prefix_len(), key.data()), value)));
    v4.chain(v6).collect::<Result<BTreeMap<_, _>, _>>().unwrap()
}

/// Prefixes whose entry is not the same in both.
fn differing(before: &Lists, after: &Lists) -> Vec<String> {
    let keys = before.keys().chain(after.keys().filter(|prefix| !before.contains_key(prefix)));
    keys.filter(|prefix| before.get(prefix) != after.get(prefix)).map(ToString::to_string).collect()
}

#[test]
fn a_change_of_one_line_among_a_hundred_thousand_writes_one_entry_and_every_packet_is_judged_throughout() {
    let edge = edge_with_sources(&[KEPT, GOOD]);
    let _daemon = edge.start(&policy(""));
    let mut sink = Sink::start(&edge, EDGE_V4);
    // This user sends all the time, whatever is applied.
    let kept = flood(&edge, KEPT, EDGE_V4, 5_000, 20.0);
    let good = flood(&edge, GOOD, EDGE_V4, 200, 20.0);
    let prefixes: Vec<String> = prefixes(ENTRIES).collect();
    let first = policy(&users(4_000, &prefixes));
    let said = applied(&edge, &first);
    assert!(said.contains("4000 changes, 100000 list entries written"), "{said}");
    let before = in_kernel(&edge);
    assert_eq!(before.len(), 100_001);
    assert!(prefixes.iter().all(|prefix| before[&prefix.parse().unwrap()].user != 0), "each is somebody's");
    assert_eq!(edge.json(&["status"])["policy_generation"], 2);

    // One more prefix for somebody in the middle.
    let line = format!("  \"{}\",\n", prefixes[50_000]);
    let second = first.replace(&line, &format!("{line}  \"198.18.7.0/30\", # new\n"));
    let said = applied(&edge, &second);
    assert!(said.contains("1 change, 1 list entry written"), "{said}");
    let after = in_kernel(&edge);
    assert_eq!(differing(&before, &after), ["198.18.7.0/30"]);
    assert_eq!(after[&"198.18.7.0/30".parse().unwrap()].user, after[&prefixes[50_000].parse().unwrap()].user);
    assert_eq!(edge.json(&["status"])["policy_generation"], 2, "the policy itself stays in place");

    // Another limit for everybody: the lists stay.
    let third = second.replace("1000000 packets/s", "900000 packets/s");
    let said = applied(&edge, &third);
    assert!(said.contains("1 change, ") && !said.contains("list entr"), "{said}");
    assert_eq!(edge.json(&["status"])["policy_generation"], 3);

    // The policy loses one prefix.
    let said = applied(&edge, &third.replace("  \"64.0.1.0/26\",\n", ""));
    assert!(said.contains("1 change, 1 list entry written"), "{said}");
    assert_eq!(differing(&after, &in_kernel(&edge)), ["64.0.1.0/26"]);
    let said = applied(&edge, &policy(""));
    assert!(said.contains("4001 changes, 100000 list entries written"), "{said}");
    assert_eq!(in_kernel(&edge).len(), 1);

    let (offered, good_sent) = (sent(kept), sent(good));
    let admitted = sink.datagrams(KEPT);
    assert!(offered > 50_000, "only {offered} were sent");
    assert!(admitted <= BUDGET, "{admitted} of {BUDGET}: the user's bucket was kept, and never left unasked");
    assert!(admitted >= BUDGET - 30, "{admitted} of {BUDGET}");
    assert_eq!(sink.datagrams_of(GOOD, good_sent), good_sent, "nobody else lost anything");
    assert_eq!(edge.passed("unlimited"), 0);
}

#[test]
fn a_long_policy_outlives_the_daemon_with_its_last_change() {
    let edge = Edge::new();
    let daemon = edge.start(&policy(""));
    let prefixes: Vec<String> = prefixes(10_000).collect();
    let first = policy(&users(1, &prefixes));
    applied(&edge, &first);
    let second = first.replace("64.0.64.0/26", "198.18.7.0/30");
    assert_ne!(first, second);
    applied(&edge, &second);
    let files = || -> Vec<String> {
        let names = fs::read_dir(edge.state())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("policy-")).collect()
    };
    assert_eq!(
        files().len(),
        4,
        "a text, and a record that says how it was changed; each twice: {:?}",
        files()
    );
    let record = fs::read(edge.state().join("policy-in-force.json")).unwrap();
    assert!(record.len() < 2_000, "the whole text is not written again: {} bytes", record.len());
    daemon.kill_9();
    // Half of the text is gone, and a digit of the record is another: neither is what anybody applied.
    let text = files()
        .into_iter()
        .find(|name| name.starts_with("policy-text-") && !name.ends_with(".copy"))
        .unwrap();
    let half = fs::metadata(edge.state().join(&text)).unwrap().len() / 2;
    fs::OpenOptions::new().write(true).open(edge.state().join(&text)).unwrap().set_len(half).unwrap();
    let flipped = String::from_utf8(record).unwrap().replacen("198.18.7.0/30", "198.18.8.0/30", 1);
    fs::write(edge.state().join("policy-in-force.json"), flipped).unwrap();
    let daemon = edge.start_again();
    daemon.wait_for_log("the applied policy stays in force");
    for broken in [&text, "policy-in-force.json"] {
        daemon.wait_for_log(&format!("{broken} is damaged"));
    }
    let next = edge.dir().join("next.toml");
    assert_eq!(edge.json(&["diff", next.to_str().unwrap()])["changes"], serde_json::json!([]));
    assert!(in_kernel(&edge).contains_key(&"198.18.7.0/30".parse().unwrap()));
    assert_eq!(files().len(), 4, "written again: {:?}", files());
    // Both copies of the text are damaged: the daemon does not start, and nobody guesses.
    daemon.kill_9();
    for broken in files().into_iter().filter(|name| name.starts_with("policy-text-")) {
        fs::write(edge.state().join(broken), "[source]\n").unwrap();
    }
    let output = edge.run_command().args(["--iface", EDGE]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("policy-text-") && said.contains("it has 9 bytes, and"), "{said}");
    assert!(in_kernel(&edge).contains_key(&"198.18.7.0/30".parse().unwrap()), "it stays in force");
    fs::remove_file(edge.state().join("policy-in-force.json")).unwrap();
    let _daemon = edge.start_again();
    // Back to the policy file: nothing is left of it.
    applied(&edge, &policy(""));
    assert_eq!(files(), [""; 0]);
}

#[test]
fn a_user_keeps_what_it_has_spent_through_applies_and_restarts_whoever_comes_and_goes() {
    keeps_what_it_has_spent(Edge::run_command, leave_the_next);
}

/// A map within another can be opened by its number with CAP_SYS_ADMIN alone, which the unit does not leave.
#[test]
fn a_user_keeps_what_it_has_spent_where_the_daemon_has_the_capabilities_of_the_packaged_unit() {
    keeps_what_it_has_spent(Edge::run_command_of_the_unit, leave_the_next);
}

/// Builds before 18 November 2026 pinned no map that is within another. A daemon that had taken over from such a build, which had taken over from one that pins, found
/// pins of maps that are no longer in force.
#[test]
fn a_user_keeps_what_it_has_spent_where_the_build_before_has_pinned_nothing_of_what_is_in_force() {
    keeps_what_it_has_spent(Edge::run_command, leave_pins_of_maps_out_of_force);
}

/// Leaves what a daemon leaves that is killed while it changes the policy.
fn leave_the_next(edge: &Edge) {
    pin_next::<Policy>(edge, names::POLICY, &names::POLICY_PINS, 1);
    pin_next::<LimitSet>(edge, names::USER_LIMITS, &names::USER_LIMITS_PINS, MAX_USERS as u32);
}

fn leave_pins_of_maps_out_of_force(edge: &Edge) {
    leave_the_next(edge);
    let path = |name: &str| PinDir::new(edge.pin()).map(Layout::current(262_144), name);
    for (array, places) in
        [(names::POLICY, &names::POLICY_PINS[..]), (names::USER_LIMITS, &names::USER_LIMITS_PINS)]
    {
        let in_force: Array<MapData, u32> =
            Map::Array(MapData::from_pin(path(array)).unwrap()).try_into().unwrap();
        for (index, places) in (0..).zip(places) {
            let Ok(in_force) = in_force.get(&index, 0) else { continue };
            let number = |name: &str| MapData::from_pin(path(name)).ok()?.info().ok().map(|info| info.id());
            places.iter().filter(|name| number(name) == Some(in_force)).for_each(|name| {
                fs::remove_file(path(name)).unwrap();
            });
        }
    }
}

fn keeps_what_it_has_spent(run: fn(&Edge) -> Command, leave: fn(&Edge)) {
    let other = "10.99.0.67";
    let edge = edge_with_sources(&[KEPT, other]);
    let start = || {
        let mut command = run(&edge);
        command.args(["--iface", EDGE]);
        Daemon::start(command)
    };
    edge.write_policy(&policy(""));
    let daemon = start();
    let mut sink = Sink::start(&edge, EDGE_V4);
    let spend = |from: &str| assert!(sent(flood(&edge, from, EDGE_V4, 5_000, 0.2)) > BUDGET);
    spend(KEPT);
    let spent = sink.datagrams(KEPT);
    assert!((BUDGET - 30..=BUDGET).contains(&spent), "{spent}");
    // One that comes first in every order, and has not spent anything yet.
    let newcomer =
        format!("[[user]]\nname = \"a\"\nsources = [\"{other}\"]\nnetwork = [\"{BUDGET} packets/day\"]\n");
    applied(&edge, &policy(&newcomer));
    spend(KEPT);
    assert_eq!(sink.datagrams(KEPT), spent, "an apply gives nothing back");
    let generation = edge.json(&["status"])["policy_generation"].as_u64();
    assert!(edge.cli(&["explain", KEPT]).status.success(), "{}", stderr(&edge.cli(&["explain", KEPT])));
    daemon.kill_9();
    leave(&edge);
    let daemon = start();
    assert!(edge.json(&["status"])["policy_generation"].as_u64() >= generation, "policies are numbered on");
    daemon.wait_for_log("the applied policy stays in force");
    spend(KEPT);
    spend(other);
    assert_eq!(sink.datagrams(KEPT), spent, "nor does a restart");
    let others = sink.datagrams(other);
    assert!((BUDGET - 30..=BUDGET).contains(&others), "nor does it take anything away: {others}");
    // The newcomer goes, and comes back: a new one.
    applied(&edge, &policy(""));
    applied(&edge, &policy(&newcomer));
    spend(KEPT);
    assert_eq!(sink.datagrams(KEPT), spent);
}

#[test]
fn an_apply_that_the_kernel_refuses_half_way_leaves_lists_policy_and_record_as_they_were() {
    let edge = edge_with_sources(&[KEPT]);
    let _daemon = edge.start(&policy(""));
    let mut sink = Sink::start(&edge, EDGE_V4);
    let before = in_kernel(&edge);
    let status = edge.json(&["status"]);
    // Somebody else has filled the list, behind the daemon's back: room for a hundred is left.
    let mut v4 = trie::<8>(&edge, names::LISTS_V4);
    let block =
        ListEntry { own_blocked_until_ns: FOREVER_NS, blocked_until_ns: FOREVER_NS, ..ListEntry::EMPTY };
    for number in 0..MAX_LISTED - 1 - 100 {
        let [a, b, c, d] = (0xc800_0000 + number).to_be_bytes();
        v4.insert(&Key::new(32, [a, b, c, d, 0, 0, 0, 0]), block, 0).unwrap();
    }
    let prefixes: Vec<String> = prefixes(1_000).collect();
    // A hundred of five hundred fit; the kept user is to lose its prefix and its limit.
    let too_much = users(10, &prefixes);
    let output = apply(&edge, &format!("[source]\nlimits = [\"1000000 packets/s\"]\n{too_much}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the IPv4 list is full at 1048576 prefixes"), "{said}");
    assert_eq!(differing(&before, &in_kernel(&edge)), [""; 0], "the list is what the daemon knows of");
    let after = edge.json(&["status"]);
    for key in ["policy_generation", "policy", "blocked_prefixes"] {
        assert_eq!(after[key], status[key], "{key}");
    }
    assert!(!edge.state().join("policy-in-force.json").exists(), "a restart reads the policy file");
    assert!(sent(flood(&edge, KEPT, EDGE_V4, 5_000, 0.5)) > BUDGET);
    let admitted = sink.datagrams(KEPT);
    assert!((BUDGET - 30..=BUDGET).contains(&admitted), "the user is held to its old limit: {admitted}");

    // Now there is room.
    let said = applied(&edge, &policy(&users(1, &prefixes)));
    assert!(said.contains("1000 list entries written"), "{said}");
}
