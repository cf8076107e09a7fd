//! `ratelimit block`: the block list.

use std::{
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use ratelimit_common::abi::{list::ALLOWED, user::NO_USER};
use ratelimit_tests::{
    answer::{assert_refused, stderr, stdout},
    daemon::{Daemon, Edge},
    netns::{EDGE, run},
};
use ratelimit_user::dataplane::{kernel, pin::PinDir};

use super::POLICY;

#[test]
fn blocks_are_added_listed_changed_and_removed() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    let added = edge.cli(&["block", "add", "203.0.113.0/24", "--for", "10m", "--reason", "syn flood"]);
    assert!(added.status.success(), "{}", stderr(&added));
    assert!(stdout(&added).contains("blocked 203.0.113.0/24 for 600 s"));
    assert!(edge.cli(&["block", "add", "2001:db8:bad::/48"]).status.success());
    let blocks = edge.json(&["block", "list"])["blocks"].clone();
    assert_eq!(blocks.as_array().unwrap().len(), 2, "{blocks}");
    assert_eq!(blocks[0]["prefix"], "203.0.113.0/24");
    assert!((590..=600).contains(&blocks[0]["seconds_left"].as_u64().unwrap()));
    assert_eq!(blocks[0]["reason"], "syn flood");
    assert_eq!(blocks[1]["seconds_left"], serde_json::Value::Null);
    assert!(stdout(&edge.cli(&["block", "list"])).contains("for good"));
    // The block is added again with another lifetime: changed, not doubled.
    assert!(edge.cli(&["block", "add", "203.0.113.0/24"]).status.success());
    assert_eq!(edge.json(&["block", "list"])["blocks"].as_array().unwrap().len(), 2);
    // Blocks outlive the daemon.
    daemon.kill_9();
    let _daemon = edge.start(POLICY);
    assert_eq!(edge.json(&["status"])["policy_generation"], 2, "policies are counted through restarts");
    assert_eq!(edge.json(&["block", "list"])["blocks"].as_array().unwrap().len(), 2);
    assert!(edge.cli(&["block", "del", "203.0.113.0/24"]).status.success());
    assert_refused(
        &edge.cli(&["block", "del", "203.0.113.0/24"]),
        1,
        &["203.0.113.0/24 is not on the block list"],
    );
    assert_eq!(edge.json(&["block", "list"])["blocks"].as_array().unwrap().len(), 1);
}

#[test]
fn lists_outlive_the_maps_and_each_change_is_a_line_of_the_log_with_who_and_why() {
    let edge = Edge::new();
    let keep = edge.dir().join("keep");
    let start = || {
        let mut command = edge.run_command();
        command.args(["--iface", EDGE]).arg("--keep").arg(&keep);
        Daemon::start(command)
    };
    edge.write_policy(POLICY);
    let daemon = start();
    let said = |words: &[&str]| stdout(&edge.cli(words));
    said(&["block", "add", "203.0.113.0/24", "--reason", "scan"]);
    let replaced = said(&["block", "add", "203.0.113.0/24", "--reason", "ticket 4711"]);
    assert!(replaced.contains("it was blocked for \"scan\" before"), "{replaced}");
    said(&["block", "add", "2001:db8:bad::/48", "--for", "1h"]);
    said(&["block", "add", "192.0.2.1", "--reason", "mistake"]);
    said(&["block", "del", "192.0.2.1"]);
    for prefix in ["198.51.100.0/24", "198.51.100.7"] {
        said(&["allow", "add", prefix]);
    }
    said(&["allow", "del", "198.51.100.7"]);
    for line in [
        "203.0.113.0/24 blocked until removed by uid 0 (pid",
        "): ticket 4711; it was blocked for \"scan\" before",
        "2001:db8:bad::/48 blocked for 3600 s by uid 0 (pid",
        "192.0.2.1/32 taken off the block list by uid 0 (pid",
        "; it was blocked for \"mistake\"",
        "198.51.100.0/24 put on the allow list by uid 0 (pid",
        "198.51.100.7/32 taken off the allow list by uid 0 (pid",
    ] {
        daemon.wait_for_log(line);
    }
    assert_eq!(edge.json(&["status"])["lists_kept_in"], keep.join("lists.journal").display().to_string());
    daemon.kill_9();
    // As after a reboot, nothing is left in the kernel; nor in the state directory.
    assert!(edge.cli(&["detach"]).status.success());
    assert_eq!(super::pins(&edge), [""; 0]);
    fs::remove_dir_all(edge.state()).unwrap();
    let daemon = start();
    daemon.wait_for_log("3 prefixes are blocked or allowed again");
    let blocks = edge.json(&["block", "list"])["blocks"].clone();
    let found: Vec<_> =
        blocks.as_array().unwrap().iter().map(|block| (&block["prefix"], &block["reason"])).collect();
    let null = serde_json::Value::Null;
    assert_eq!(
        found,
        [(&"203.0.113.0/24".into(), &"ticket 4711".into()), (&"2001:db8:bad::/48".into(), &null)]
    );
    assert_eq!(blocks[0]["seconds_left"], null);
    assert!((3500..=3600).contains(&blocks[1]["seconds_left"].as_u64().unwrap()), "{blocks}");
    assert_eq!(edge.json(&["allow", "list"])["allows"], serde_json::json!(["198.51.100.0/24"]));
    // One daemon writes into this directory.
    let other = Edge::new();
    other.write_policy(POLICY);
    let mut second = other.run_command();
    second.args(["--iface", EDGE]).arg("--keep").arg(&keep);
    assert_refused(&second.output().unwrap(), 2, &["another daemon", "keep", "--keep"]);
}

#[test]
fn removing_a_block_inside_a_wider_one_says_so() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    assert!(edge.cli(&["block", "add", "203.0.113.0/24"]).status.success());
    assert!(edge.cli(&["block", "add", "203.0.113.9"]).status.success());
    let removed = edge.cli(&["block", "del", "203.0.113.9"]);
    assert!(stdout(&removed).contains("203.0.113.0/24 still blocks it"), "{}", stdout(&removed));
}

#[test]
fn a_prefix_that_a_wider_one_has_on_its_list_already_is_added_with_a_word_about_it() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    let said = |words: &[&str]| stdout(&edge.cli(words));
    assert!(!said(&["block", "add", "192.0.0.0/16", "--for", "10m"]).contains(';'));
    let shorter = said(&["block", "add", "192.0.2.0/24", "--for", "1m"]);
    assert!(shorter.ends_with("; 192.0.0.0/16 is blocked for at least as long\n"), "{shorter}");
    assert!(!said(&["block", "add", "192.0.2.0/24"]).contains(';'), "for good is longer");
    assert!(!said(&["allow", "add", "198.51.100.0/24"]).contains(';'));
    let inside = said(&["allow", "add", "198.51.100.7"]);
    assert!(inside.ends_with("; 198.51.100.0/24 is on the allow list already\n"), "{inside}");
}

#[test]
fn blocks_that_ran_out_are_removed_from_the_kernel_and_nothing_else_is() {
    let policy = format!(
        "{POLICY}[[user]]\nname = \"acme\"\nsources = [\"192.0.2.4\"]\nnetwork = [\"1000 packets/s\"]\n"
    );
    let edge = Edge::new();
    let daemon = edge.start(&policy);
    // One that says nothing else, one on the allow list, one of a user; and one that lasts.
    assert!(edge.cli(&["allow", "add", "192.0.2.3"]).status.success());
    for address in ["192.0.2.1", "192.0.2.3", "192.0.2.4"] {
        assert!(edge.cli(&["block", "add", address, "--for", "1ms", "--reason", "scan"]).status.success());
    }
    assert!(edge.cli(&["block", "add", "192.0.2.2"]).status.success());
    daemon.kill_9();
    // A starting daemon sweeps at once.
    let daemon = edge.start(&policy);
    daemon.wait_for_log("192.0.2.4/32: its block has run out");
    let (_, maps) = kernel::load(Some(&PinDir::new(edge.pin())), 262_144).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while maps.lists().unwrap().len() > 3 {
        assert!(Instant::now() < deadline, "{:?}", maps.lists());
    }
    let listed: Vec<(String, bool, bool, bool)> = maps
        .lists()
        .unwrap()
        .iter()
        .map(|(prefix, entry)| {
            let is_blocked = entry.own_blocked_until_ns != 0;
            (prefix.to_string(), is_blocked, entry.own_allowed == ALLOWED, entry.own_user != NO_USER)
        })
        .collect();
    let expected = [("2", true, false, false), ("3", false, true, false), ("4", false, false, true)];
    assert_eq!(
        listed,
        expected.map(|(last, block, allow, user)| (format!("192.0.2.{last}/32"), block, allow, user))
    );
    assert_eq!(edge.json(&["block", "list"])["blocks"][0]["prefix"], "192.0.2.2/32");
    assert_eq!(edge.json(&["allow", "list"])["allows"], serde_json::json!(["192.0.2.3/32"]));
}

#[test]
fn bad_prefixes_lifetimes_and_reasons_are_refused_with_what_would_be_right() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    let long = "x".repeat(65);
    for (words, sentence) in [
        (&["block", "add", "203.0.113.7/24"][..], &["203.0.113.0/24"][..]),
        (&["block", "add", "203.0.113.0/33"], &["33"]),
        (&["block", "add", "example.com"], &["example.com"]),
        (&["block", "add", "::ffff:192.0.2.1"], &["192.0.2.1"]),
        (&["allow", "add", "2001:db8::1/48"], &["2001:db8::/48"]),
        (&["block", "add", "192.0.2.1", "--for", "10"], &["--for", "10"]),
        (&["block", "add", "192.0.2.1", "--for", "0s"], &["--for"]),
        (&["block", "add", "192.0.2.1", "--reason", &long], &["65 bytes", "at most 64"]),
    ] {
        assert_refused(&edge.cli(words), 2, sentence);
    }
    assert_eq!(edge.json(&["block", "list"])["blocks"], serde_json::json!([]), "nothing was half done");
}

#[test]
fn a_choice_that_locks_the_operator_out_comes_with_a_warning() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    assert_refused(
        &edge.cli(&["block", "add", "::/0"]),
        2,
        &["fd00:99::1 is this host's own address", "--force"],
    );
    let everybody = edge.cli(&["block", "add", "::/0", "--for", "1s", "--force"]);
    assert!(stdout(&everybody).contains("your own connection included"), "{}", stdout(&everybody));
    let escape = edge.cli(&["block", "add", "192.0.2.1", "--reason", "red \u{1b}[31malert"]);
    assert_refused(&escape, 2, &["control characters"]);
    let turned = edge.cli(&["block", "add", "192.0.2.1", "--reason", "of \u{202e}lla"]);
    assert_refused(&turned, 2, &["\\u{202e}", "use plain text"]);
    let joined = edge.cli(&["block", "add", "192.0.2.1", "--reason", "می\u{200c}خواهم"]);
    assert_eq!(joined.status.code(), Some(0), "letters that a mark keeps apart");
}

/// A state directory on a disk of its own.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn below(edge: &Edge) -> Self {
        fs::create_dir_all(edge.state()).unwrap();
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(edge.state()));
        Self(edge.state())
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    fn fill(&self) {
        let mut file = File::create(self.filler()).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_disk_that_has_room_again_is_noticed_by_the_next_order_and_by_status() {
    const NOT_ON_DISK: &str = "NOT ON DISK";
    let edge = Edge::new();
    let disk = SmallDisk::below(&edge);
    let daemon = edge.start(POLICY);
    let mut numbers = 0..;
    let mut add = || {
        let prefix = format!("2001:db8::{:x}", numbers.next().unwrap());
        stdout(&edge.cli(&[
            "block",
            "add",
            &prefix,
            "--reason",
            "sixty-three bytes of reason fill a disk quickly",
        ]))
    };
    disk.fill();
    while !add().contains(NOT_ON_DISK) {}
    // Other files on it are not written either, whoever asks for it.
    let other = edge.dir().join("other.toml");
    fs::write(&other, "[source]\nlimits = [\"444 packets/s\"]\n").unwrap();
    assert_refused(
        &edge.cli(&["apply", &other.display().to_string()]),
        2,
        &["cannot write", "policy-in-force.json", "No space left"],
    );
    assert!(add().contains(NOT_ON_DISK), "it is still full");
    fs::remove_file(disk.filler()).unwrap();
    let freed = Instant::now();
    while add().contains(NOT_ON_DISK) {}
    assert!(freed.elapsed() < Duration::from_secs(3), "{:?} after there was room", freed.elapsed());
    let warnings = || edge.json(&["status"])["warnings"].to_string();
    assert!(!warnings().contains(NOT_ON_DISK), "{}", warnings());
    disk.fill();
    while !add().contains(NOT_ON_DISK) {}
    assert!(warnings().contains(NOT_ON_DISK), "{}", warnings());
    // Nobody gives an order: the daemon finds out by itself.
    fs::remove_file(disk.filler()).unwrap();
    let freed = Instant::now();
    while warnings().contains(NOT_ON_DISK) {
        assert!(freed.elapsed() < Duration::from_secs(5), "{}", warnings());
    }
    daemon.kill_9();
}
