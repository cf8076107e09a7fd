//! `ratelimit block`: the block list.

use std::time::{Duration, Instant};

use ratelimit_tests::{
    answer::{assert_refused, stderr, stdout},
    daemon::Edge,
};
use ratelimit_user::dataplane::{kernel, pin::PinDir, probe};

use crate::POLICY;

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
    // Again, with another lifetime: changed, not doubled.
    assert!(edge.cli(&["block", "add", "203.0.113.0/24"]).status.success());
    assert_eq!(edge.json(&["block", "list"])["blocks"].as_array().unwrap().len(), 2);
    // They outlive the daemon.
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
fn blocks_that_ran_out_are_removed_from_the_kernel() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    assert!(edge.cli(&["block", "add", "192.0.2.1", "--for", "1ms"]).status.success());
    assert!(edge.cli(&["block", "add", "192.0.2.2"]).status.success());
    daemon.kill_9();
    // A starting daemon sweeps at once.
    let _daemon = edge.start(POLICY);
    let release = probe::require_kernel(&probe::kernel_release()).unwrap();
    let (_, maps) = kernel::load(Some(&PinDir::new(edge.pin())), 262_144, release).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while maps.lists().unwrap().len() > 1 {
        assert!(Instant::now() < deadline, "{:?}", maps.lists());
    }
    assert_eq!(edge.json(&["block", "list"])["blocks"][0]["prefix"], "192.0.2.2/32");
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
}
