//! `ratelimit allow`: the allow list.

use ratelimit_tests::{
    answer::{assert_refused, stdout},
    daemon::Edge,
};

use super::POLICY;

#[test]
fn the_allow_list_is_added_to_listed_and_removed_from() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    assert!(edge.cli(&["allow", "add", "198.51.100.7"]).status.success());
    assert!(edge.cli(&["allow", "add", "2001:db8::/32"]).status.success());
    assert_eq!(
        edge.json(&["allow", "list"])["allows"],
        serde_json::json!(["198.51.100.7/32", "2001:db8::/32"])
    );
    let both = edge.cli(&["block", "add", "198.51.100.7"]);
    assert!(stdout(&both).contains("on the allow list too, which wins"), "{}", stdout(&both));
    assert!(edge.cli(&["allow", "del", "198.51.100.7"]).status.success());
    assert_refused(&edge.cli(&["allow", "del", "198.51.100.7"]), 1, &["is not on the allow list"]);
    assert_eq!(
        edge.json(&["block", "list"])["blocks"][0]["prefix"],
        "198.51.100.7/32",
        "the block is untouched"
    );
}
