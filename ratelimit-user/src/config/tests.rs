//! Whole files, and every message about them.

mod api_mistakes;
mod apis;
mod cluster;
mod host;
mod listen;
mod notify;
mod requests;
mod services;
mod users;
mod warnings;

use std::fs;

use proptest::prelude::*;

use super::*;

fn problems(text: &str) -> Vec<String> {
    match parse(text, "p.toml") {
        Err(LoadError::Problems(problems)) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

fn warnings(text: &str) -> Vec<String> {
    let loaded = parse(text, "p.toml").unwrap_or_else(|error| panic!("{error}"));
    loaded.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn the_smallest_useful_policy_is_two_lines() {
    let loaded =
        parse("[source]\nlimits = [\"5000 packets/s burst 10000\", \"100 syns/s\"]\n", "p.toml").unwrap();
    assert!(loaded.warnings.is_empty());
    let source = loaded.policy.source();
    assert_eq!(source.limits().len(), 2);
    assert_eq!((source.ipv4_prefix(), source.ipv6_prefix(), source.table_entries()), (32, 64, 262_144));
}

#[test]
fn every_key_is_understood() {
    let text = "interfaces = [\"eth0\", \"eth1.5\"]\n[source]\nlimits = [\"40 Mbit/s\"]\nipv4_prefix = 24\n\
                ipv6_prefix = 56\ntable_entries = 1_000\n[listen]\nmetrics = \"[::1]:9464\"\n";
    let policy = parse(text, "p.toml").unwrap().policy;
    let names: Vec<String> = policy.interfaces().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["eth0", "eth1.5"]);
    let source = policy.source();
    assert_eq!((source.ipv4_prefix(), source.ipv6_prefix(), source.table_entries()), (24, 56, 1_000));
    assert_eq!(policy.listen().metrics(), Some("[::1]:9464".parse().unwrap()));
}

#[test]
fn all_problems_of_a_file_are_reported_in_order_with_line_and_column() {
    let text = "colour = \"blue\"\n\
                interfaces = [\"eth0\", \"eth0\", \"a/b\", 7]\n\
                [source]\n\
                limits = [\"0 packets/s\", \"10 furlongs/s\", \"5 packets/s burst 0\"]\n\
                ipv4_prefix = 33\n\
                ipv6_prefix = \"64\"\n\
                table_entries = 0\n\
                limts = []\n\
                [listen]\n\
                metrics = \"9464\"\n\
                http = \"8080\"\n\
                [[user]]\n\
                name = \"acme\"\n";
    let found = problems(text);
    let expected = [
        "p.toml:1:1: key \"colour\" is not known; known here: interfaces, mode, source, host, service, plan, user, requests, api, listen, \
         cluster, attacks, notify",
        "p.toml:2:23: interface \"eth0\" is named twice; remove one",
        "p.toml:2:31: interface name \"a/b\" has a slash, a colon or white space in it, which no interface has",
        "p.toml:2:38: an entry of interfaces is a number; write a string in quotes",
        "p.toml:4:11: limit \"0 packets/s\": rate 0 lets nothing pass; use at least 1, or block the source",
        "p.toml:4:30: unit \"furlongs\" is not known; use packets, syns, fragments, bytes, kB, MB, GB, KiB, MiB, GiB, bit, kbit, \
         Mbit or Gbit",
        "p.toml:4:43: limit \"5 packets/s burst 0\": burst 0 is never satisfiable; use at least 1",
        "p.toml:5:15: ipv4_prefix = 33 is out of range; use 1 to 32",
        "p.toml:6:15: ipv6_prefix is a string; write a whole number",
        "p.toml:7:17: table_entries = 0 is out of range; use 1 to 16777216",
        "p.toml:8:1: key \"limts\" is not known; did you mean \"limits\"? known here: limits, ipv4_prefix, ipv6_prefix, \
         table_entries, gate, ladder, new_sources_per_cpu",
        "p.toml:10:11: metrics = \"9464\" is not an address with a port; use one such as \"127.0.0.1:9464\"",
        "p.toml:11:8: http = \"8080\" is not an address with a port, nor a socket; use one such as \"127.0.0.1:8080\" or \
         \"unix:/run/ratelimit/http.sock\"",
    ];
    assert_eq!(found, expected);
}

#[test]
fn every_worked_policy_of_the_documentation_is_accepted_without_a_warning() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policies");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let loaded = load(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(loaded.warnings.is_empty(), "{}: {:?}", path.display(), loaded.warnings);
        seen += 1;
    }
    assert_eq!(seen, 5);
}

#[test]
fn a_key_below_the_wrong_table_line_is_told_where_it_belongs() {
    assert_eq!(
        problems("[source]\nlimits = [\"1/s\"]\ninterfaces = [\"eth0\"]\n"),
        ["p.toml:3:1: key \"interfaces\" belongs above the first [table]; move it there"]
    );
    assert_eq!(
        problems("ipv4_prefix = 24\n[source]\nlimits = [\"1/s\"]\n"),
        ["p.toml:1:1: key \"ipv4_prefix\" belongs in [source]; move it there"]
    );
}

#[test]
fn limits_of_packets_are_needed_but_where_only_requests_are_answered() {
    let (nothing, requests) = ("mode = \"enforce\"\n", "[[api]]\nname = \"a\"\nlimits = [\"1/s\"]\n");
    assert!(problems(nothing)[0].contains("[source] is missing: nothing would be limited;"));
    assert!(problems(requests)[0].contains("and only `ratelimit serve` does without;"));
    let file = std::env::temp_dir().join(format!("ratelimit-requests-only-{}.toml", std::process::id()));
    fs::write(&file, requests).unwrap();
    assert_eq!(load_for_requests(&file).unwrap().policy.requests().apis.len(), 1);
    fs::write(&file, format!("{requests}colour = 1\n")).unwrap();
    let refused = load_for_requests(&file).unwrap_err().to_string();
    assert!(refused.contains(":4:1:") && !refused.contains("[source]"), "{refused}");
    fs::remove_file(&file).unwrap();
}

#[test]
fn a_value_of_the_wrong_type_is_one_problem_and_not_also_a_missing_one() {
    for (text, problem) in [
        ("source = 5\n", "p.toml:1:10: source is a number; write it as a table, [source]"),
        ("[[source]]\nlimits = [\"1/s\"]\n", "p.toml:1:1: source is a list; write it as a table, [source]"),
        (
            "[source]\nlimits = \"1/s\"\n",
            "p.toml:2:10: limits is a string; write a list of strings, limits = [\"…\"]",
        ),
        ("[source]\nlimits = [5]\n", "p.toml:2:11: an entry of limits is a number; write a string in quotes"),
        (
            "[source]\nlimits = [\"x/s\"]\n",
            "p.toml:2:11: \"x\" stands where a number belongs; write it like \"1000 packets/s burst 2000\"",
        ),
        (
            "[source]\nlimits = [\"1/s\"]\ntable_entries = 99999999999999999999\n",
            "p.toml:3:17: table_entries = 99999999999999999999 is too large for any use",
        ),
        (
            "[source]\nlimits = [\"1/s\"]\nipv4_prefix = 24.0\n",
            "p.toml:3:15: ipv4_prefix is a number with a fraction; write a whole number",
        ),
        (
            "[source]\nlimits = [\"1/s\"]\n[listen]\nmetrics = true\n",
            "p.toml:4:11: metrics is true or false; write a string in quotes",
        ),
    ] {
        assert_eq!(problems(text), [problem], "{text}");
    }
}

#[test]
fn the_prefilter_is_off_by_one_line_and_its_budget_has_bounds() {
    let source = |line: &str| format!("[source]\nlimits = [\"1/s\"]\n{line}\n");
    let policy = |line: &str| parse(&source(line), "p.toml").unwrap_or_else(|error| panic!("{error}")).policy;
    assert!(policy("").prefilter().enabled());
    assert!(!policy("gate = false").prefilter().enabled());
    assert_eq!(policy("new_sources_per_cpu = 7").prefilter().new_sources_per_cpu(), 7);
    assert_eq!(
        problems(&source("new_sources_per_cpu = 0")),
        ["p.toml:3:23: new_sources_per_cpu = 0 is out of range; use 1 to 10000000"]
    );
    assert_eq!(problems(&source("gate = \"off\"")), ["p.toml:3:8: gate is a string; write true or false"]);
}

#[test]
fn the_rest_of_a_table_is_checked_even_if_its_limits_are_missing() {
    let found = problems("[source]\nipv4_prefix = 0\n");
    assert_eq!(found.len(), 2, "{found:#?}");
    assert_eq!(found[1], "p.toml:2:15: ipv4_prefix = 0 is out of range; use 1 to 32");
}

#[test]
fn broken_syntax_is_reported_beside_what_can_still_be_read_and_without_its_consequences() {
    // A value recovered from a broken line is a guess, so it is not judged, and nothing counts as missing.
    for (text, expected) in [
        ("[source\nlimits = [\"1/s\"]\n", &["p.toml:1:8: not TOML: unclosed table, expected `]`"][..]),
        (
            "[source]\nlimits = \ncolour = 1\nipv4_prefix = = 3\ntable_entries = 0\n",
            &[
                "p.toml:2:10: not TOML: string values must be quoted, expected literal string",
                "p.toml:3:1: key \"colour\" is not known; known here: limits, ipv4_prefix, ipv6_prefix, \
                 table_entries, gate, ladder, new_sources_per_cpu",
                "p.toml:4:15: not TOML: extra `=`, expected nothing",
                "p.toml:5:17: table_entries = 0 is out of range; use 1 to 16777216",
            ],
        ),
        (
            "interfaces = [eth0]\n[source]\nlimits = [\"1/s\"]\nlimits = [\"2/s\"]\n",
            &[
                "p.toml:1:15: not TOML: string values must be quoted, expected literal string",
                "p.toml:4:1: not TOML: duplicate key",
            ],
        ),
    ] {
        assert_eq!(problems(text), expected, "{text}");
    }
}

#[test]
fn a_file_full_of_errors_is_judged_quickly_and_shortened() {
    let found = problems(&"a\n".repeat(1 << 20));
    assert_eq!(found.len(), 51);
    assert_eq!(found[50], "p.toml:50:2: and 1048526 more from here on");
    // All problems are on one line: columns are not counted from the start for each.
    let limits = "\"1 mb/s\", ".repeat(1 << 18);
    let found = problems(&format!("[source]\nlimits = [{limits}]\n"));
    assert_eq!(found.len(), 51);
    // The limits are valid by themselves, and not all pairs of them are compared.
    let limits = "\"1/s\", ".repeat(1 << 18);
    let names: String = (0..1 << 18).map(|i| format!("\"eth{i}\", ")).collect();
    let found = problems(&format!("interfaces = [{names}]\n[source]\nlimits = [{limits}]\n"));
    assert_eq!(found.len(), 1 + 3, "one for their number, and the first few are equal: {found:#?}");
}

#[test]
fn a_policy_that_would_limit_nothing_is_refused() {
    assert!(problems("")[0].starts_with("p.toml:1:1: [source] is missing"));
    assert!(problems("[source]\n")[0].contains("[source] has no limits"));
    assert!(problems("[source]\nlimits = []\n")[0].starts_with("p.toml:2:10: limits is empty"));
}

#[test]
fn too_many_limits_are_counted_by_the_file_and_placed_at_the_first_too_many() {
    let found = problems("[source]\nlimits = [\"1/s\", \"2/min\", \"oops\", \"2 syns/min\", \"1 MB/s\"]\n");
    assert_eq!(found.len(), 2, "{found:#?}");
    assert_eq!(
        found[1],
        "p.toml:2:49: 5 limits are more than a source can have; use at most 4, a soft or elastic one counts as two"
    );
}

#[test]
fn a_limit_that_another_always_forestalls_is_refused_with_both_named() {
    let never = |place, loser, winner| {
        format!(
            "p.toml:2:{place}: limit \"{loser}\" never decides: \"{winner}\" is at least as strict in rate and burst; \
                 remove one of them"
        )
    };
    for (limits, expected) in [
        (
            "\"10 packets/s burst 20\", \"5 packets/s burst 20\"",
            vec![never(11, "10 packets/s burst 20", "5 packets/s burst 20")],
        ),
        ("\"60/min\", \"1/s burst 60\"", vec![never(21, "1 packets/s burst 60", "60 packets/min burst 60")]),
        ("\"1/s burst 10\", \"2/s burst 9\"", vec![]),
        ("\"1/s\", \"2 syns/s\", \"4 MB/s\"", vec![]),
    ] {
        let text = format!("[source]\nlimits = [{limits}]\n");
        let found = parse(&text, "p.toml").map_or_else(|_| problems(&text), |_| Vec::new());
        assert_eq!(found, expected, "{limits}");
    }
}

#[test]
fn columns_count_characters_and_a_byte_order_mark_is_ignored() {
    let found = problems("\u{feff}interfaces = [\"größer\", \"größer\"]\n[source]\nlimits = [\"1/s\"]\n");
    assert_eq!(found, ["p.toml:1:25: interface \"größer\" is named twice; remove one"]);
}

#[test]
fn a_piece_of_a_limit_is_placed_inside_its_string_whatever_the_quotes() {
    for (limits, column) in [
        ("\"5 mb/s\"", 14),
        ("'5 mb/s'", 14),
        ("\"\"\"5 mb/s\"\"\"", 16),
        ("\"5 é/s\"", 14),
        // A string with an escape is reported as a whole.
        ("\"5\\u0020mb/s\"", 11),
    ] {
        let found = problems(&format!("[source]\nlimits = [{limits}]\n"));
        assert!(found[0].starts_with(&format!("p.toml:2:{column}: ")), "{limits}: {found:#?}");
    }
}

#[test]
fn a_file_that_is_missing_or_too_large_or_no_text_says_so() {
    let dir = std::env::temp_dir().join(format!("ratelimit-config-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let missing = load(&dir.join("missing.toml")).unwrap_err().to_string();
    assert!(missing.contains("missing.toml"), "{missing}");
    fs::write(dir.join("bytes.toml"), [b'#', b'\n', b'a', 0xff]).unwrap();
    let bytes = load(&dir.join("bytes.toml")).unwrap_err().to_string();
    assert!(bytes.contains("not UTF-8 text (byte 4, in line 2)"), "{bytes}");
    File::create(dir.join("large.toml")).unwrap().set_len(MAX_BYTES + 1).unwrap();
    let large = load(&dir.join("large.toml")).unwrap_err().to_string();
    assert!(large.contains("more than a policy has"), "{large}");
    let endless = load(Path::new("/dev/zero")).unwrap_err().to_string();
    assert!(endless.contains("more than a policy has"), "{endless}");
    fs::remove_dir_all(&dir).unwrap();
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC*") {
        let _outcome = parse(&text, "p.toml");
    }

    #[test]
    fn no_policy_like_text_makes_it_panic_and_what_it_accepts_compiles(
        keys in proptest::collection::vec(
            ("(interfaces|source|limits|ipv6_prefix|metrics|mode)", "[\\[\\]\"=0-9a-z/ ._-]{0,20}"), 0..6),
        limit in "[0-9]{1,9}( packets| syns| MB| Mbit)?/(s|min|hour|day)( burst [0-9]{1,7})?",
    ) {
        let mut text = format!("[source]\nlimits = [{limit:?}]\n");
        for (key, value) in keys {
            text.push_str(&format!("{key} = {value}\n"));
        }
        if let Ok(loaded) = parse(&text, "p.toml") {
            let facts = crate::compile::HostFacts {
                cpus: 4,
                tick_ns: 4_000_000,
                secret: [1, 2],
                cookies: true,
                translated: Vec::new(),
                window_scale: None,
                headroom: true,
                reserve: None,
            };
            let desired = crate::compile::desired(&loaded.policy, &facts, 1, None);
            prop_assert!(desired.policy.source.set.limit_count >= 1);
        }
    }
}
