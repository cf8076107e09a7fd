//! Every mistake in `[requests]`, `[[api]]`, and limits of plans and users, at its place.

use super::problems;

const SOURCE: &str = "[source]\nlimits = [\"1/s\"]\n";

/// The problems of a text that stands below two other lines, without the file name.
fn refused(text: &str) -> Vec<String> {
    let found = problems(&format!("{SOURCE}{text}\n"));
    found.iter().map(|problem| problem.strip_prefix("p.toml:").unwrap().to_owned()).collect()
}

/// The problems of an `[[api]]` whose lines start at line 5, without the file name.
fn refused_api(lines: &str) -> Vec<String> {
    refused(&format!("[[api]]\nname = \"a\"\n{lines}"))
}

#[test]
fn every_mistake_in_a_key_of_an_api_is_reported_at_its_place() {
    for (line, expected) in [
        (
            "sharing = \"all\"",
            "11: sharing = \"all\" is not known; use one of \"strict\", \"lease\", \"local\"",
        ),
        (
            "without_store = \"last-rate\"",
            "17: without_store = \"last-rate\" is not known; use one of \"share\", \"reserve\", \"local\", \"refuse\"",
        ),
        (
            "algorithm = \"gcra\"",
            "13: algorithm = \"gcra\" is not known; use one of \"token-bucket\", \"leaky-bucket\", \"fixed-window\", \
             \"sliding-window\", \"sliding-window-weighted\", \"sliding-log\"",
        ),
        (
            "throttle = \"strict\"",
            "12: throttle = \"strict\" is not known; use \"hard\", or a margin such as \"soft 10%\" or \"elastic 50%\"",
        ),
        (
            "throttle = \"soft 0%\"",
            "12: throttle: \"0%\" is no margin; write it like \"soft 10%\", from 1% to 1000%",
        ),
        (
            "on_limit = \"drop\"",
            "12: on_limit = \"drop\" is not known; use \"refuse\", \"delay 2s\" or \"deprioritise\"",
        ),
        ("on_limit = \"delay\"", "12: on_limit = \"delay\": it says no time; write \"delay 2s\""),
        (
            "on_limit = \"delay 61s\"",
            "12: on_limit = \"delay 61s\": no caller waits that long; use at most 60s",
        ),
        (
            "on_limit = \"delay 2x\"",
            "12: on_limit = \"delay 2x\": lifetime unit \"x\" is not known; use ms, s, m, h or d",
        ),
        (
            "key = []",
            "7: key of api \"a\" has no part: all requests would be one; use [\"user\"] or [\"ip\"]",
        ),
        (
            "key = [\"User\"]",
            "8: key \"User\" is not possible; use user, ip, api, or a word of a-z, 0-9, - and _, at most 64",
        ),
        ("key = [\"ip\", \"ip\"]", "14: key names \"ip\" twice; remove one"),
        (
            "key = [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\", \"i\"]",
            "48: 9 parts of a key are too many; use at most 8",
        ),
        ("ipv4_prefix = 33", "15: ipv4_prefix = 33 is out of range; use 1 to 32"),
        ("ipv6_prefix = 0", "15: ipv6_prefix = 0 is out of range; use 1 to 128"),
        (
            "reserved = { critical = \"20\" }",
            "25: critical = \"20\": it is no part of a limit; use \"0%\" to \"99%\", without decimals",
        ),
        (
            "reserved = { critical = \"60%\", normal = \"40%\" }",
            "12: reserved is 100% of every limit: nothing is left for others; keep it below 100%",
        ),
        ("reserved = { low = \"1%\" }", "14: key \"low\" is not known; known here: critical, normal"),
        (
            "plans = { gold = [\"1/s\"] }",
            "11: plan \"gold\" is not there; write [plan.gold], or name another",
        ),
        ("plans = [\"gold\"]", "9: plans is a list; write it as a table, [plans]"),
        (
            "users = { acme = [\"1 MB/s\"] }",
            "22: unit \"MB\" is for packets; requests are just counted, so write \"requests\" or no unit",
        ),
        (
            "time_zone = \"Mars/Olympus\"\nusers = { a = [\"1/day fixed-window\"] }",
            "13: time_zone = \"Mars/Olympus\" is not known; use a name such as \"Europe/Berlin\" or \"UTC\"",
        ),
        (
            "time_zone = \"UTC\"",
            "13: time_zone = \"UTC\" decides nothing: no limit of api \"a\" is a fixed-window per day or month; remove it",
        ),
        ("preset = \"logout\"", "10: preset = \"logout\" is not known; use \"login\""),
        (
            "per_ip = [\"1/s\"]",
            "10: per_ip is for preset = \"login\"; write that beside it, or remove per_ip",
        ),
        (
            "known_for = \"1d\"",
            "13: known_for is for preset = \"login\"; write that beside it, or remove known_for",
        ),
        (
            "user = { a = [\"1/s\"] }",
            "1: key \"user\" is not known; did you mean \"users\"? known here: name, key, limits, algorithm, throttle, on_limit, \
             sharing, without_store, reserved, ipv4_prefix, ipv6_prefix, time_zone, plans, users, escalate, preset, per_ip, \
             per_user_and_ip, per_user, known_for",
        ),
    ] {
        let limits = "limits = [\"100/hour\"]";
        assert_eq!(refused_api(&format!("{line}\n{limits}")), [format!("5:{expected}")], "{line}");
    }
}

#[test]
fn an_api_needs_a_name_of_its_own_and_says_what_its_limits_are() {
    let limits = "limits = [\"1/s\"]";
    let bad = |name: &str| {
        format!(
            "4:8: api name {name:?} is not one; use letters, digits, -, _, ., @, / and :, at most 64, or \"*\" for all others"
        )
    };
    for name in ["", "a b", "a*", "ä", &"x".repeat(65)] {
        assert_eq!(refused(&format!("[[api]]\nname = {name:?}\n{limits}")), [bad(name)]);
    }
    let twice = |name: &str| format!("[[api]]\nname = {name:?}\n{limits}\n").repeat(2);
    assert_eq!(refused(&twice("a")), ["7:8: api \"a\" is there twice; give one another name"]);
    assert_eq!(refused(&twice("*")), ["7:8: api \"*\" is there twice; give one another name"]);
    for (text, expected) in [
        ("[[api]]\nlimits = [\"1/s\"]", "3:1: [[api]] has no name; write name = \"create-url\""),
        ("[[api]]\nname = 5\nlimits = [\"1/s\"]", "4:8: name is a number; write a string in quotes"),
        (
            "[[api]]\nname = \"a\"",
            "3:1: api \"a\" has no limits; write limits = [\"100/hour\"], or limits = [] for none",
        ),
        (
            "[[api]]\nname = \"a\"\nlimits = 5",
            "5:10: limits is a number; write a list of strings, limits = [\"…\"]",
        ),
        ("api = 5", "3:1: key \"api\" belongs above the first [table]; move it there"),
        ("[api]\nname = \"a\"", "3:1: api is a table; write each as a table, [[api]]"),
    ] {
        assert_eq!(refused(text), [expected], "{text}");
    }
}

#[test]
fn every_limit_that_cannot_be_counted_is_refused_and_its_neighbour_is_not() {
    for (bad, good, why) in [
        ("0/s", "1/s", "rate 0 lets nothing pass; use at least 1"),
        ("1/s burst 0", "1/s burst 1", "burst 0 is never satisfiable; use at least 1"),
        (
            "4294967296/hour sliding-window",
            "4294967295/hour sliding-window",
            "4294967296 in one period are more than can be counted; use at most 4294967295, or a shorter period",
        ),
        (
            "10001/min sliding-log",
            "10000/min sliding-log",
            "a sliding-log keeps every request, and 10001 are too many; use at most 10000, or sliding-window",
        ),
        (
            "9100/min sliding-log soft 10%",
            "9090/min sliding-log soft 10%",
            "a sliding-log keeps every request, and 10010 are too many; use at most 10000, or sliding-window",
        ),
        (
            "100000/day",
            "100000/day burst 52121",
            "burst 100000 takes too long to refill at a rate per day to be counted exactly; use at most 52121, or a window",
        ),
        (
            "1/hour burst 1250997",
            "1/hour burst 1250996",
            "burst 1250997 takes too long to refill at a rate per hour to be counted exactly; use at most 1250996, or a window",
        ),
        (
            "1/day burst 26061 leaky-bucket soft 100%",
            "1/day burst 26060 leaky-bucket soft 100%",
            "burst 26061 takes too long to refill at a rate per day to be counted exactly; use at most 26060, or a window",
        ),
        (
            "1/month sliding-window",
            "1/day sliding-window",
            "months are those of a calendar, which only a fixed-window follows; use fixed-window, or a rate per day",
        ),
        (
            "1/month fixed-window",
            "1/day fixed-window",
            "a month begins at another time in each time zone; write time_zone = \"Europe/Berlin\", or \"UTC\"",
        ),
    ] {
        let found = refused_api(&format!("limits = [\"{good}\", \"{bad}\"]"));
        assert_eq!(found, [format!("5:{}: limit \"{bad}\": {why}", 15 + good.len())]);
        let found = refused(&format!("[plan.gold]\nlimits = [\"{good}\", \"{bad}\"]"));
        assert_eq!(found, [format!("4:{}: limit \"{bad}\": {why}", 15 + good.len())]);
    }
    let nine = ["\"1/s\""; 9].join(", ");
    let too_many = "9 limits are more than a list can have; use at most 8";
    assert_eq!(refused_api(&format!("limits = [{nine}]")), [format!("5:67: {too_many}")]);
    assert_eq!(refused_api(&format!("users = {{ a = [{nine}] }}")), [format!("5:72: {too_many}")]);
}

#[test]
fn a_window_has_no_slot_to_hold_wherever_it_stands() {
    let why = "is a window, and a window has no slot to hold; use token-bucket or leaky-bucket";
    for (lines, window) in [
        ("limits = [\"1/s\", \"9/min sliding-window\"]", "9/min sliding-window"),
        ("limits = [\"1/s\"]\nalgorithm = \"sliding-log\"", "1/s sliding-log"),
        ("limits = []\nusers = { a = [\"1/s fixed-window\"] }", "1/s fixed-window"),
        ("preset = \"login\"\nper_user = [\"1/s fixed-window\"]", "1/s fixed-window"),
    ] {
        let found = refused_api(&format!("on_limit = \"delay 2s\"\n{lines}"));
        assert_eq!(found, [format!("5:12: on_limit = \"delay 2s\": \"{window}\" {why}")], "{lines}");
    }
}

#[test]
fn logins_have_no_other_limits_beside_their_own() {
    let text = "preset = \"login\"\nlimits = [\"1/s\"]\nkey = [\"ip\"]\nplans = {}\nusers = {}\nknown_for = \"soon\"";
    let other = |place: &str, key: &str| {
        format!(
            "{place}: {key} does not go with preset = \"login\", which has per_ip, per_user_and_ip and per_user"
        )
    };
    assert_eq!(
        refused_api(text),
        [
            other("6:10", "limits"),
            other("7:7", "key"),
            other("8:9", "plans"),
            other("9:9", "users"),
            "10:13: known_for = \"soon\": lifetime \"soon\" does not start with a whole number; write it like 30s, 10m or 1h30m".to_owned(),
        ]
    );
}

#[test]
fn every_mistake_in_an_escalation_is_reported_at_its_place() {
    let right = "above = \"10/s\", for = \"30s\", block = \"10m\"";
    for (from, to, expected) in [
        ("above = \"10/s\", ", "", "12: escalate has no above; write above = \"10/s\""),
        (", block = \"10m\"", "", "12: escalate has no block; write block = \"10m\""),
        (
            "10/s",
            "x",
            "22: above = \"x\": \"x\" stands where a number belongs; write it like \"100/hour burst 20\"",
        ),
        (
            "10/s",
            "10/s burst 5",
            "22: above = \"10/s burst 5\": it is a plain rate of refusals; write it like \"10/s\"",
        ),
        (
            "10/s",
            "10/s soft 5%",
            "22: above = \"10/s soft 5%\": it is a plain rate of refusals; write it like \"10/s\"",
        ),
        ("30s", "2h", "36: for = \"2h\": it is not possible; use 1s to 1h"),
        ("10m", "10", "51: block = \"10\": lifetime \"10\" has no unit; use ms, s, m, h or d"),
        ("\"10m\"", "\"10m\", ipv4_prefix = 40", "72: ipv4_prefix = 40 is out of range; use 1 to 32"),
    ] {
        let lines = format!("escalate = {{ {} }}\nlimits = [\"1/s\"]", right.replace(from, to));
        assert_eq!(refused_api(&lines), [format!("5:{expected}")], "{lines}");
    }
}

#[test]
fn keys_and_threads_have_bounds() {
    assert_eq!(
        refused("[requests]\nkeys = 100_000_001\nthreads = 0\ntime_zone = \"Nowhere\"\nkey = 1"),
        [
            "4:8: keys = 100000001 is out of range; use 1 to 100000000",
            "5:11: threads = 0 is out of range; use 1 to 1024",
            "6:13: time_zone = \"Nowhere\" is not known; use a name such as \"Europe/Berlin\" or \"UTC\"",
            "7:1: key \"key\" is not known; did you mean \"keys\"? known here: keys, threads, time_zone",
        ]
    );
}

#[test]
fn what_follows_from_another_mistake_is_not_reported() {
    // An unknown algorithm makes no limit wrong, and a zone beside an unreadable limit is not called useless.
    let text = "algorithm = \"windw\"\ntime_zone = \"UTC\"\non_limit = \"delay 2s\"\nlimits = [\"100000/day\", \"5/month\", \"x\"]";
    let found = refused_api(text);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("5:13: algorithm = \"windw\" is not known"), "{found:#?}");
    assert!(found[1].starts_with("8:36: \"x\" stands where a number belongs"), "{found:#?}");
    assert_eq!(refused_api("time_zone = \"UTC\"\nlimits = [\"5/week\"]").len(), 1);
}
