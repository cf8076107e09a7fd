//! Names and values of settings, and what is refused.

use super::*;
use crate::config;

const POLICY: &str = r#"
    [source]
    limits = ["10 packets/s", "5 syns/s"]
    [[service]]
    name = "dns"
    match = { protocol = "udp", ports = [53] }
    per_source = ["200 packets/s burst 400"]
    [plan.gold]
    network = ["20000 packets/s"]
    [plan.free]
    network = ["100 packets/s", "1000 packets/min burst 50"]
    [[user]]
    name = "acme"
    plan = "gold"
    [[user]]
    name = "a"
    [[user]]
    name = "a.network"
    plan = "gold"
    network = ["7 packets/s"]
    [[user]]
    name = "loner"
"#;

fn policy() -> Policy {
    config::parse(POLICY, "p.toml").unwrap_or_else(|error| panic!("{error}")).policy
}

/// The policy after one setting has been changed.
fn set(policy: &Policy, name: &str, value: &str) -> Result<Policy, String> {
    let setting = policy.setting(name).map_err(|error| error.to_string())?;
    assert_eq!(setting.to_string(), name, "a setting is called what it was found by");
    policy.with(&setting, value).map_err(|error| error.to_string())
}

fn value(policy: &Policy, name: &str) -> Option<String> {
    policy.value(&policy.setting(name).unwrap())
}

fn refused(name: &str, to: &str) -> String {
    set(&policy(), name, to).unwrap_err()
}

#[test]
fn every_list_and_every_limit_has_a_name_and_can_be_set_by_it() {
    for (name, to, is) in [
        ("source.packets", "20 packets/s burst 50", "20 packets/s burst 50"),
        ("source.bytes", "1 MB/s", "1 MB/s burst 1 MB"),
        ("source", "7/s, 3 syns/s", "7 packets/s burst 7, 3 syns/s burst 3"),
        ("service.dns.per_source.packets", "1/s", "1 packets/s burst 1"),
        ("service.dns.per_source", "none", "none"),
        ("service.dns.total", "9/s,1 MB/s", "9 packets/s burst 9, 1 MB/s burst 1 MB"),
        ("service.dns.total.bytes", "1 MB/s", "1 MB/s burst 1 MB"),
        ("plan.gold.network", "5/s", "5 packets/s burst 5"),
        ("plan.free.network.packets-2", "5/min", "5 packets/min burst 5"),
        ("user.acme.network", "5/s", "5 packets/s burst 5"),
        ("user.acme.network.packets", "5/s", "5 packets/s burst 5"),
        ("user.a.network.network.packets", "5/s", "5 packets/s burst 5"),
        ("user.a.network.network", "plan", "plan"),
        ("user.acme.plan", "free", "free"),
    ] {
        let after = set(&policy(), name, to).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(value(&after, name).as_deref(), Some(is), "{name}");
        // Setting a value to itself changes nothing: settings can be written down and read back.
        assert_eq!(set(&after, name, is).unwrap(), after, "{name}");
    }
}

#[test]
fn a_plan_that_changes_changes_whoever_is_on_it_and_has_no_limits_of_its_own() {
    let after = set(&policy(), "plan.gold.network.packets", "3/s").unwrap();
    let of = |user: &str| words(after.users().get(user).unwrap().network());
    assert_eq!(of("acme"), "3 packets/s burst 3");
    assert_eq!(of("a.network"), "7 packets/s burst 7");
    assert_eq!(of("loner"), "none");
}

#[test]
fn a_user_that_gets_one_limit_of_its_own_keeps_a_copy_of_the_others_of_its_plan() {
    let free = set(&policy(), "user.acme.plan", "free").unwrap();
    let after = set(&free, "user.acme.network.packets", "50/s").unwrap();
    assert_eq!(
        value(&after, "user.acme.network").unwrap(),
        "50 packets/s burst 50, 1000 packets/min burst 50"
    );
    let later = set(&after, "plan.free.network", "1/s").unwrap();
    assert_eq!(value(&later, "user.acme.network"), value(&after, "user.acme.network"));
}

#[test]
fn a_name_that_means_nothing_is_answered_with_those_that_do() {
    for (name, sentence) in [
        (
            "nope",
            "no limit is called \"nope\"; there is source.packets, source.syns, service.dns.per_source.packets",
        ),
        ("source.frames", "there is source.packets, source.syns, source.bytes, source.fragments"),
        ("source.packets-2", "there is source.packets, source.syns, source.bytes"),
        ("source.packets-1", "no limit is called"),
        ("source.packets-02", "no limit is called"),
        ("service.dns.total.syns-2", "there is service.dns.total.packets, service.dns.total.bytes"),
        ("service.web.total", "no service is called \"web\"; there is dns"),
        ("plan.silver.network", "no plan is called \"silver\"; there is free, gold"),
        ("user.nobody.network.packets", "no user is called \"nobody\"; there is acme, a, a.network, loner"),
        ("user.nobody.plan", "no user is called \"nobody\"; there is acme, a, a.network, loner"),
    ] {
        let error = refused(name, "1/s");
        assert!(error.contains(sentence), "{name}: {error}");
    }
    let full = set(&policy(), "source", "10/s, 100/min, 1000/hour, 5 syns/s").unwrap();
    let unknown = set(&full, "source.frames", "1/s").unwrap_err();
    assert!(unknown.ends_with("source.packets-3, source.syns"), "what has no room is not offered: {unknown}");
}

#[test]
fn a_value_that_does_not_fit_is_refused_with_what_would() {
    for (name, to, sentence) in [
        ("source.packets", "1 MB/s", "use a rate in packets"),
        ("source.packets", "0/s", "rate 0"),
        ("source.packets", "fast", "limit \"source.packets\": "),
        ("source.packets", "1/s, 2/s", "limit \"source.packets\": "),
        ("source", "none", "limits is empty"),
        (
            "source",
            "1/s, 2/min, 3/hour, 4/day, 1 MB/s",
            "5 limits are more than a source can have; use at most 4",
        ),
        ("source", "1/s,", "limit \"source\": "),
        ("service.dns.total", "1/s, 1/min", "service \"dns\" has two totals in packets; use one"),
        ("service.dns.total.syns", "1 syns/s", "a total in syns is not possible; use packets or bytes"),
        ("user.acme.plan", "silver", "no plan is called \"silver\"; there is free, gold"),
        ("user.loner.network", "plan", "user \"loner\" is on no plan"),
        ("plan.gold.network", "1/s, 1/min, 1/hour, 1/day, 1 MB/s", "plan \"gold\": 5 network limits"),
    ] {
        let error = refused(name, to);
        assert!(error.contains(sentence), "{name}: {error}");
    }
    let full = set(&policy(), "source", "10/s, 100/min, 1000/hour, 5 syns/s").unwrap();
    let fifth = set(&full, "source.bytes", "1 MB/s").unwrap_err();
    assert!(fifth.contains("5 limits are more"), "{fifth}");
}

#[test]
fn a_limit_that_the_store_of_a_cluster_cannot_count_is_refused_there_and_taken_elsewhere() {
    let text = format!("{POLICY}\n[cluster]\nredis = \"redis://h\"\n");
    let cluster = config::parse(&text, "p.toml").unwrap_or_else(|error| panic!("{error}")).policy;
    for list in ["plan.gold.network", "user.acme.network"] {
        let error = set(&cluster, list, "5/s, 1000003 packets/day").unwrap_err();
        let sentence = format!("{list} \"1000003 packets/day burst 1000003\": the burst is too large");
        assert!(error.starts_with(&sentence), "{error}");
        assert!(set(&cluster, list, "1000003 packets/day sliding-window").is_ok(), "counted by each host");
        assert!(set(&policy(), list, "1000003 packets/day").is_ok());
    }
}
