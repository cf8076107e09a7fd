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
                http = \"127.0.0.1:8080\"\n\
                [[service]]\n\
                name = \"dns\"\n";
    let found = problems(text);
    let expected = [
        "p.toml:1:1: key \"colour\" is not known; known here: interfaces, source, listen",
        "p.toml:2:23: interface \"eth0\" is named twice",
        "p.toml:2:31: interface name \"a/b\" has a slash",
        "p.toml:2:38: an entry of interfaces is a number; write a string in quotes",
        "p.toml:4:11: limit \"0 packets/s\": ",
        "p.toml:4:30: unit \"furlongs\" is not known; use packets",
        "p.toml:4:43: limit \"5 packets/s burst 0\": ",
        "p.toml:5:15: ipv4_prefix = 33 is out of range; use 1 to 32",
        "p.toml:6:15: ipv6_prefix is a string; write a whole number",
        "p.toml:7:17: table_entries = 0 is out of range",
        "p.toml:8:1: key \"limts\" is not known; did you mean \"limits\"?",
        "p.toml:10:11: metrics = \"9464\" is not an address with a port",
        "p.toml:11:1: \"http\" is not supported by this version yet; remove it",
        "p.toml:12:3: \"service\" is not supported by this version yet; remove it",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\nshould start with\n{expected}");
    }
}

#[test]
fn broken_syntax_is_reported_beside_what_can_still_be_read() {
    let found = problems("[source]\nlimits = [\"1/s\"\nipv4_prefix = = 3\ntable_entries = 0\n");
    assert!(found.len() >= 2, "{found:#?}");
    assert!(found.iter().any(|line| line.contains("not TOML")), "{found:#?}");
}

#[test]
fn a_policy_that_would_limit_nothing_is_refused() {
    assert!(problems("")[0].starts_with("p.toml:1:1: [source] is missing"));
    assert!(problems("[source]\n")[0].contains("[source] has no limits"));
    assert!(problems("[source]\nlimits = []\n")[0].starts_with("p.toml:2:10: limits is empty"));
}

#[test]
fn too_many_limits_and_limits_that_never_decide_are_refused() {
    let five = "[source]\nlimits = [\"1/s\", \"2/min\", \"1 syns/s\", \"2 syns/min\", \"1 MB/s\"]\n";
    assert!(problems(five).iter().any(|line| line.contains("5 limits are more")), "{:?}", problems(five));
    let shadowed = problems("[source]\nlimits = [\"10 packets/s burst 20\", \"5 packets/s burst 20\"]\n");
    assert_eq!(shadowed.len(), 1, "{shadowed:#?}");
    assert!(
        shadowed[0].starts_with("p.toml:2:11: limit \"10 packets/s burst 20\" never decides"),
        "{shadowed:#?}"
    );
}

#[test]
fn columns_count_characters_and_a_byte_order_mark_is_ignored() {
    let found = problems("\u{feff}interfaces = [\"größer\", \"größer\"]\n[source]\nlimits = [\"1/s\"]\n");
    assert_eq!(found, ["p.toml:1:25: interface \"größer\" is named twice; remove one"]);
}

#[test]
fn what_is_allowed_but_probably_not_meant_is_a_warning() {
    let text = "[source]\nlimits = [\"1/s\"]\nipv6_prefix = 128\n[listen]\nmetrics = \"0.0.0.0:9464\"\n";
    let found = warnings(text);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found[1].starts_with("p.toml:3:15: ipv6_prefix = 128") || found[0].starts_with("p.toml:3:15:"),
        "{found:#?}"
    );
}

#[test]
fn a_file_that_is_missing_or_too_large_or_no_text_says_so() {
    let dir = std::env::temp_dir().join(format!("ratelimit-config-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let missing = load(&dir.join("missing.toml")).unwrap_err().to_string();
    assert!(missing.contains("missing.toml"), "{missing}");
    fs::write(dir.join("bytes.toml"), [b'a', 0xff]).unwrap();
    let bytes = load(&dir.join("bytes.toml")).unwrap_err().to_string();
    assert!(bytes.contains("not UTF-8 text (byte 2)"), "{bytes}");
    fs::File::create(dir.join("large.toml")).unwrap().set_len(MAX_BYTES + 1).unwrap();
    let large = load(&dir.join("large.toml")).unwrap_err().to_string();
    assert!(large.contains("more than a policy has"), "{large}");
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
            let desired = crate::compile::desired(&loaded.policy, 1);
            prop_assert!(desired.limit_count >= 1);
        }
    }
}
