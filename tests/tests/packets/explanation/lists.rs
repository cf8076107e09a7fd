//! What `explain` says of an address that is on the block list or the allow list.

use ratelimit_common::abi::{ListEntry, list};

use super::{Site, block, listed};

fn allow() -> ListEntry {
    ListEntry { own_allowed: list::ALLOWED, ..ListEntry::EMPTY }
}

#[test]
fn blocks_and_allows_around_an_address_are_named_longest_first_and_the_allow_list_wins() {
    let now_ns = 1_000_000_000;
    let entries = [
        ("10.0.0.0/8", block(list::FOREVER_NS, "")),
        ("10.1.2.0/24", block(now_ns + 90_000_000_000, "syn flood")),
        ("10.1.2.3/32", block(now_ns, "ran out")),
        ("10.1.0.0/16", allow()),
        ("192.0.2.0/24", block(now_ns + 500_000_000, "")),
    ];
    let site = Site::new("[source]\nlimits = [\"1000 packets/s\"]\n", listed(&entries));
    assert_eq!(site.memory.now_ns.get(), now_ns);
    let allowed = site.explain([10, 1, 2, 3]);
    assert_eq!((allowed.verdict.as_str(), allowed.reason.as_str()), ("pass", "allowed"));
    assert_eq!(allowed.allowed_by, ["10.1.0.0/16"]);
    let blocks: Vec<_> =
        allowed.blocked_by.iter().map(|one| (one.prefix.as_str(), one.seconds_left)).collect();
    assert_eq!(blocks, [("10.1.2.0/24", Some(90)), ("10.0.0.0/8", None)]);
    assert_eq!(allowed.blocked_by[0].reason.as_deref(), Some("syn flood"));
    assert_eq!(allowed.blocked_by[0].until.as_deref(), Some("2023-11-14T22:14:50Z"));
    assert!(allowed.refusals.is_empty());

    let blocked = site.explain([10, 2, 0, 1]);
    assert_eq!((blocked.verdict.as_str(), blocked.reason.as_str()), ("drop", "blocked"));
    assert_eq!(blocked.refusals[0].for_ms, None, "for good");
    let soon = site.explain([192, 0, 2, 1]);
    assert_eq!((soon.blocked_by[0].seconds_left, soon.refusals[0].for_ms), (Some(1), Some(500)));
    site.wait_ms(500);
    assert_eq!(site.explain([192, 0, 2, 1]).verdict, "pass", "it ended by itself");
}
