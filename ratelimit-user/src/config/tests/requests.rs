//! Warnings about requests: what is allowed and probably not intended.

use super::warnings;

const STORE: &str = "[cluster]\nredis = \"redis://h\"\n";

/// The warnings about a text that stands below two other lines, without the file name.
fn below(text: &str) -> Vec<String> {
    let found = warnings(&format!("[source]\nlimits = [\"1/s\"]\n{text}\n"));
    found.iter().map(|warning| warning.strip_prefix("p.toml:").unwrap().to_owned()).collect()
}

#[test]
fn a_limit_of_requests_that_never_decides_is_named_wherever_it_stands() {
    let never = |place: &str, of: &str| {
        format!(
            "{place}: {of} \"9/s burst 9\" never decides: \"5/s burst 5\" beside it is at least as strict"
        )
    };
    let both = "[\"9/s\", \"5/s\"]";
    assert_eq!(
        below(&format!(
            "[plan.p]\nlimits = {both}\n[[user]]\nname = \"u\"\nlimits = {both}\n[[api]]\nname = \"a\"\nlimits = {both}\n\
             plans = {{ p = {both} }}\nusers = {{ u = {both} }}\n[[api]]\nname = \"l\"\npreset = \"login\"\nper_ip = {both}\n\
             per_user = {both}\nper_user_and_ip = {both}\n"
        )),
        [
            never("4:11", "plan \"p\": limits"),
            never("7:11", "user \"u\": limits"),
            never("10:11", "api \"a\": limits"),
            never("11:16", "api \"a\": plans.p"),
            never("12:16", "api \"a\": users.u"),
            never("16:11", "api \"l\": per_ip"),
            never("17:13", "api \"l\": per_user"),
            never("18:20", "api \"l\": per_user_and_ip"),
        ]
    );
    let api = |limits: &str| below(&format!("[[api]]\nname = \"a\"\nlimits = [{limits}]"));
    assert_eq!(api("\"100/min sliding-window\", \"100/hour sliding-window\"").len(), 1);
    assert_eq!(api("\"60/min\", \"1/s burst 60\"").len(), 1, "of two that are alike, one");
    for fine in [
        "\"9/s\", \"5/s burst 10\"",
        "\"9/s\", \"5/s sliding-window\"",
        "\"9/s\", \"5/s soft 10%\"",
        "\"100/hour\", \"3/min\"",
    ] {
        assert_eq!(api(fine), [""; 0], "{fine}");
    }
}

#[test]
fn listeners_for_questions_that_nothing_limits_are_named() {
    let listen =
        "[listen]\nhttp = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\ngrpc = \"127.0.0.1:3\"\nresp = \"unix:/s\"\n";
    let all = |place: &str, key: &str| {
        format!("{place}: {key} would allow everything: there is no [[api]], and no plan or user has limits")
    };
    assert_eq!(below(listen), [all("4:9", "http"), all("5:8", "grpc"), all("6:8", "resp")]);
    for limits in [
        "[[api]]\nname = \"a\"\nlimits = [\"1/s\"]",
        "[plan.p]\nlimits = [\"1/s\"]",
        "[[user]]\nname = \"u\"\nlimits = [\"1/s\"]",
    ] {
        assert_eq!(below(&format!("{listen}{limits}")), [""; 0], "{limits}");
    }
}

#[test]
fn escalation_of_addresses_that_nobody_answers_for_is_named() {
    let api = "[[api]]\nname = \"a\"\nlimits = [\"1/s\"]\nescalate = { above = \"1/s\", for = \"30s\", block = \"10m\" }\n[listen]\n";
    let warning = "6:12: api \"a\": escalate blocks nobody: anybody on this host could name any address. Name a token_file or a socket in the \
                   file system in [listen], or the addresses of those who may ask in trusted_proxies";
    for (listen, expected) in [
        ("http = \"127.0.0.1:1\"", Some(warning)),
        ("http = \"127.0.0.1:1\"\ngrpc = \"[::1]:2\"\ntrusted_proxies = [\"10.0.0.0/8\"]", Some(warning)),
        ("http = \"127.0.0.1:1\"\ntoken_file = \"/t\"", None),
        ("http = \"127.0.0.1:1\"\nresp = \"unix:/s\"", None),
        ("http = \"127.0.0.1:1\"\ntrusted_proxies = [\"127.0.0.1\"]", None),
        // Without listeners, only operators can ask questions.
        ("", None),
    ] {
        assert_eq!(below(&format!("{api}{listen}\n")), Vec::from_iter(expected), "{listen}");
    }
}

#[test]
fn what_is_said_about_other_hosts_does_nothing_without_a_cluster() {
    let api = "[[api]]\nname = \"a\"\nlimits = [\"1/s\"]\nsharing = \"local\"\nwithout_store = \"refuse\"\n";
    assert_eq!(
        below(api),
        [
            "6:11: sharing = \"local\" does nothing without [cluster]",
            "7:17: without_store = \"refuse\" does nothing without [cluster]",
        ]
    );
    assert_eq!(below(&format!("{api}[cluster]\nredis = \"redis://h\"\n")), [""; 0]);
}

#[test]
fn long_limits_that_every_restart_gives_again_are_named() {
    let given = |place: &str, of: &str| {
        format!(
            "{place}: {of} \"9/day fixed-window\" is given again by every restart: counts are in memory; \
             count it with [cluster] in a store that writes them down, or use a period of an hour at most"
        )
    };
    let day = "[\"9/day fixed-window\", \"8/hour\"]";
    let api = format!("[[api]]\nname = \"a\"\nlimits = {day}\nplans = {{ p = {day} }}\n");
    let text = format!("[plan.p]\nlimits = {day}\n[[user]]\nname = \"u\"\nlimits = {day}\n{api}");
    let all = [
        given("4:11", "plan \"p\": limits"),
        given("7:11", "user \"u\": limits"),
        given("10:11", "api \"a\": limits"),
        given("11:16", "api \"a\": plans.p"),
    ];
    assert_eq!(below(&text), all);
    assert_eq!(below(&format!("{text}{STORE}")), [""; 0]);
    let local = format!("{text}sharing = \"local\"\n{STORE}");
    assert_eq!(below(&local), all[2..], "each host counts these in its memory");
    for (limit, count) in [("60/hour burst 61", 1), ("60/hour burst 60", 0), ("1/day burst 1", 1)] {
        assert_eq!(below(&format!("[[api]]\nname = \"a\"\nlimits = [\"{limit}\"]")).len(), count, "{limit}");
    }
}

#[test]
fn a_zone_of_all_requests_that_no_limit_has_is_named() {
    let zone = "[requests]\ntime_zone = \"Europe/Berlin\"\n";
    let nothing =
        "4:13: time_zone = \"Europe/Berlin\" decides nothing: no limit is a fixed-window per day or month";
    assert_eq!(below(zone), [nothing]);
    let own = "[[api]]\nname = \"a\"\ntime_zone = \"UTC\"\nlimits = [\"1/day fixed-window\"]\n";
    assert_eq!(below(&format!("{zone}{own}{STORE}")), [nothing]);
    assert_eq!(below(&format!("{zone}[plan.p]\nlimits = [\"1/month fixed-window\"]\n{STORE}")), [""; 0]);
}

#[test]
fn a_user_without_sources_is_one_who_asks_if_requests_are_limited() {
    let user = "[[user]]\nname = \"u\"\n";
    assert_eq!(
        below(user),
        [
            "3:1: user \"u\" has no sources: no packet is ever its own",
            "3:1: user \"u\" has no network limits: nothing holds it but the source's",
        ]
    );
    let api = "[[api]]\nname = \"a\"\nlimits = [\"1/s\"]\n";
    assert_eq!(below(&format!("{user}{api}")), [""; 0]);
    let with_sources = format!("{user}sources = [\"192.0.2.0/24\"]\n{api}");
    assert_eq!(below(&with_sources).len(), 1);
}

#[test]
fn a_log_that_few_keys_can_use_up_at_once_is_warned_about_with_the_number() {
    let log = |requests: &str, api: &str| below(&format!("{requests}[[api]]\nname = \"a\"\n{api}\n{STORE}"));
    let day = "limits = [\"10000/day sliding-log\"]";
    let says = |keys: &str| {
        format!(
            "api \"a\": limits \"10000/day sliding-log\" keeps up to 80 KB for each key, and all logs together at most {keys} keys that have \
             used it up, those that were not asked about for longest start anew; use sliding-window, or more keys"
        )
    };
    let at = |lines: &[String]| {
        lines.iter().map(|line| line.split_once(": ").unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(at(&log("", day)), [says("512 MB ([requests] keys = 1000000): beyond 6400")]);
    let many = "[requests]\nkeys = 100000\n";
    assert_eq!(at(&log(many, day)), [says("68 MB ([requests] keys = 100000): beyond 838")]);
    assert_eq!(log("[requests]\nkeys = 800\n", day), [""; 0], "all of them fit");
    assert_eq!(log("", "limits = [\"600/day sliding-log\"]"), [""; 0]);
    assert_eq!(log("", "limits = [\"10000/day sliding-window\"]"), [""; 0]);
    assert_eq!(log("", &format!("key = [\"api\"]\n{day}")), [""; 0], "one key");
    let login = "preset = \"login\"\nper_user = [\"10000/day sliding-log\"]";
    assert_eq!(log("", login).len(), 1);
    let margin = log("", "limits = [\"5000/day sliding-log soft 50%\"]");
    assert!(margin[0].contains("up to 60 KB") && margin[0].contains("beyond 8533 keys"), "{margin:?}");
}
