//! What a request is counted by: its user, its address and further parts.

use super::{START, World, ip};
use crate::requests::Request;

#[test]
fn keys_are_made_of_what_the_policy_says() {
    let world = World::new(
        "[[api]]\nname = \"both\"\nkey = [\"user\", \"ip\"]\nlimits = [\"1/min\"]\n[[api]]\nname = \"net\"\nkey = [\"ip\"]\nipv4_prefix = 24\nlimits = [\"1/min\"]\n[[api]]\nname = \"tenant\"\nkey = [\"tenant\"]\nlimits = [\"1/min\"]",
    );
    let both = |user, address| Request::new(user, "both").from(ip(address));
    assert!(world.serves(&both("a", "192.0.2.1"), START) && world.serves(&both("a", "192.0.2.2"), START));
    assert!(world.serves(&both("b", "192.0.2.1"), START) && !world.serves(&both("a", "192.0.2.1"), START));
    assert!(!world.serves(&both("a", "::ffff:192.0.2.1"), START), "IPv4 in IPv6 is IPv4");
    let net = |address| Request::new("", "net").from(ip(address));
    assert!(world.serves(&net("192.0.2.1"), START) && !world.serves(&net("192.0.2.200"), START));
    assert!(world.serves(&net("2001:db8::1"), START) && !world.serves(&net("2001:db8::2"), START));
    assert!(world.serves(&net("2001:db8:0:1::"), START));
    let (red, blue) = ([("tenant", "red")], [("tenant", "blue")]);
    let tenant = |parts| Request { parts, ..Request::new("", "tenant") };
    assert!(world.serves(&tenant(&red), START) && world.serves(&tenant(&blue), START));
    assert!(!world.serves(&tenant(&red), START));
}

#[test]
fn parts_of_a_key_are_not_mixed_up_wherever_one_ends() {
    let world = World::new("[[api]]\nname = \"api\"\nkey = [\"user\", \"x\"]\nlimits = [\"1/min\"]");
    let (c, bc) = ([("x", "c")], [("x", "bc")]);
    assert!(world.serves(&Request { parts: &c, ..Request::new("ab", "api") }, START));
    assert!(world.serves(&Request { parts: &bc, ..Request::new("a", "api") }, START));
}

#[test]
fn parts_that_the_policy_names_are_counted_apart_and_others_are_not() {
    let world = World::new("[[api]]\nname = \"api\"\nkey = [\"user\", \"tenant\"]\nlimits = [\"2/min\"]\n");
    for (parts, served) in [
        ([("tenant", "a"), ("colour", "red")], 2),
        ([("tenant", "b"), ("colour", "red")], 2),
        ([("tenant", "a"), ("colour", "blue")], 0),
    ] {
        let request = Request::new("u", "api").with_parts(&parts);
        assert_eq!(world.served(&request, START, 100), served, "{parts:?}");
    }
}

#[test]
fn those_who_give_no_name_are_one_and_on_the_default_plan_where_names_count() {
    let world = World::new(
        "[plan.default]\nlimits = [\"3/min fixed-window\"]\n[[api]]\nname = \"api\"\nlimits = []\n[[api]]\nname = \"net\"\nkey = [\"ip\"]\nlimits = [\"9/min\"]\n\
         [[api]]\nname = \"tenant\"\nkey = [\"user\", \"tenant\"]\nlimits = [\"2/min\"]\n",
    );
    let nobody = |api| Request::new("", api).from(ip("192.0.2.1"));
    assert_eq!(world.served(&nobody("net"), START, 100), 9, "nobody is asked for a name here");
    let empty = [("tenant", "")];
    assert_eq!(world.served(&nobody("tenant"), START, 100), 2);
    assert_eq!(world.served(&nobody("tenant").with_parts(&empty), START, 100), 0, "empty is none");
    assert_eq!(world.served(&nobody("api"), START, 100), 1, "of three over all APIs that count names");
    let (long, longer) = ("x".repeat(100_000), "x".repeat(100_001));
    assert_eq!(world.served(&Request::new(&long, "api"), START, 100), 3);
    assert_eq!(world.served(&Request::new(&longer, "api"), START, 100), 3);
}
