//! `[[user]]` and `[plan.<name>]`: every mistake at its place.

use super::problems;

#[test]
fn every_mistake_in_a_user_is_reported_at_its_place() {
    let user = |body: &str| format!("[source]\nlimits = [\"1/s\"]\n[[user]]\n{body}\n");
    for (body, expected) in [
        ("sources = [\"192.0.2.0/24\"]\nnetwork = [\"1/s\"]", "p.toml:3:1: [[user]] has no name"),
        (
            "name = \"a b\"\nsources = [\"192.0.2.1\"]\nnetwork = [\"1/s\"]",
            "p.toml:3:1: user name \"a b\" is not one",
        ),
        (
            "name = \"a\"\nplan = \"gold\"",
            "p.toml:5:8: plan \"gold\" is not there; write [plan.gold], or name another",
        ),
        ("name = \"a\"\nsources = [\"192.0.2.300\"]\nnetwork = [\"1/s\"]", "p.toml:5:12: "),
        (
            "name = \"a\"\nsources = [\"192.0.2.1\"]\nnetwork = [\"1/s\"]\n[[user]]\nname = \"b\"\nsources = [\"192.0.2.1/32\"]\nnetwork = [\"1/s\"]",
            "p.toml:7:1: source 192.0.2.1/32 of user \"b\" belongs to user \"a\" already",
        ),
        (
            "name = \"a\"\nsources = [\"192.0.2.1\"]\nnetwork = [\"5 packets/s burst 0\"]",
            "p.toml:6:12: limit \"5 packets/s burst 0\": burst 0 is never satisfiable",
        ),
        (
            "name = \"a\"\nlimits = [\"1 packets/s\"]\nsources = [\"192.0.2.1\"]\nnetwork = [\"1/s\"]",
            "p.toml:5:14: unit \"packets\" is for packets; requests are just counted",
        ),
    ] {
        let found = problems(&user(body));
        assert_eq!(found.len(), 1, "{body}: {found:#?}");
        assert!(found[0].starts_with(expected), "{found:#?} should start with {expected}");
    }
    assert_eq!(
        problems("mode = \"off\"\n[source]\nlimits = [\"1/s\"]\n"),
        ["p.toml:1:8: mode = \"off\" is not known; use \"enforce\" or \"monitor\""]
    );
}
