//! What verbs print as JSON, held against docs/json.md.

use std::{collections::BTreeSet, fs, path::Path};

use ratelimit_tests::{
    answer::{stderr, stdout},
    daemon::Edge,
};
use serde_json::Value;

/// A policy that fills in as many fields as one host can.
const POLICY: &str = r#"
[source]
limits = ["5000 packets/s burst 10000", "100 syns/s"]

[host]
total = ["500000 packets/s"]

[[service]]
name = "web"
match = { protocol = "tcp", ports = [443] }
per_source = ["200 packets/s"]
total = ["20000 packets/s"]
syn_cookies = "1000 syns/s"

[plan.gold]
network = ["20000 packets/s burst 40000"]

[[user]]
name = "acme"
plan = "gold"
sources = ["203.0.113.0/24"]

[[api]]
name = "search"
limits = ["100/hour"]
"#;

/// The paths of all values of an answer, as the page writes them.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let name = if path.ends_with("_by_reason") { "*" } else { name };
                paths(value, &format!("{path}{}{name}", if path.is_empty() { "" } else { "." }), found);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_object) => {
            values.iter().for_each(|value| paths(value, &format!("{path}[]"), found));
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

/// The fields that a section of the page names, and whether each is always there.
fn documented<'a>(page: &'a str, section: &str) -> Vec<(&'a str, bool)> {
    let heading = format!("\n## {section}\n");
    let text = page.split_once(&heading).unwrap_or_else(|| panic!("{section:?} is no section")).1;
    let text = text.split("\n## ").next().unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| {
        let (fields, meaning) = row.trim_matches('|').split_once(" | ").unwrap();
        let always = !meaning.trim().starts_with("Absent") && !meaning.trim().starts_with("From");
        fields.split('`').skip(1).step_by(2).map(move |field| (field, always))
    })
    .collect()
}

/// Whether a value without parts (null, or an empty list or object) stands at a path where the page has parts.
fn is_around(outer: &str, inner: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.') || rest.starts_with("[]"))
}

/// What differs between an answer and its section. Of a verb that shows one element of a documented list, the element is the answer.
pub(crate) fn differences(words: &[&str], section: &str, answer: &Value, always: bool) -> Vec<String> {
    let mut differences = Vec::new();
    let mut seen = BTreeSet::new();
    paths(answer, "", &mut seen);
    if !seen.remove("version") || answer["version"] != 1 {
        differences.push(format!("{words:?}: no version"));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/json.md");
    let page = fs::read_to_string(page).unwrap();
    let documented = documented(&page, section);
    for path in &seen {
        let is_documented = documented.iter().any(|(field, _)| {
            field.strip_suffix('…').map_or(path == field, |prefix| path.starts_with(prefix))
                || is_around(path, field)
                || field.split_once("[].").is_some_and(|(_, of_one)| of_one == path)
        });
        if !is_documented {
            differences.push(format!("{words:?}: {path} is not in docs/json.md, {section}"));
        }
    }
    for (field, _) in documented.iter().filter(|(_, is_always)| *is_always && always) {
        let is_seen =
            seen.iter().any(|path| path == field || is_around(path, field) || is_around(field, path));
        if !is_seen {
            differences.push(format!("{words:?}: {field} is in docs/json.md, {section}, and not here"));
        }
    }
    differences
}

/// Lists whose elements are lists: what an element of such a list means would be its place.
fn positional(value: &Value, path: &str) -> Vec<String> {
    match value {
        Value::Array(values) if values.iter().any(Value::is_array) => vec![path.to_owned()],
        Value::Array(values) => values.iter().flat_map(|inner| positional(inner, path)).collect(),
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, inner)| positional(inner, &format!("{path}.{name}"))).collect()
        }
        _ => Vec::new(),
    }
}

/// Commands that fail on a host without a daemon, pins or files, at least one for each verb that has `--output`.
const FAILING: &[&str] = &[
    "status",
    "stats",
    "watch --for 1s",
    "explain 203.0.113.7",
    "explain nonsense",
    "suggest",
    "block add 203.0.113.7",
    "block add nonsense",
    "block del 203.0.113.7",
    "block list",
    "allow add 203.0.113.7",
    "allow del 203.0.113.7",
    "allow list",
    "limit list",
    "limit get source",
    "limit set source.packets 5/s",
    "user list",
    "user get acme",
    "user set acme --plan gold",
    "user reset acme",
    "test --user u --api a",
    "cluster",
    "check /nonexistent.toml",
    "diff /nonexistent.toml",
    "apply /nonexistent.toml --confirm soon",
    "confirm",
    "rollback",
    "doctor --iface nonsense",
    "top --once",
    "attacks list",
    "attacks show 1",
    "known show 203.0.113.7",
    "known import /nonexistent.txt",
    "known forget nonsense",
];

/// Verbs that have `--output`, as the help says; of verbs with verbs of their own, the first.
fn verbs_with_output() -> Vec<String> {
    let help = |words: &[&str]| String::from_utf8(super::ratelimit(words).stdout).unwrap();
    let listed = |text: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| *line != "Commands:").skip(1);
        let lines = lines.take_while(|line| line.starts_with("  ")).filter(|line| !line.starts_with("   "));
        let verbs = lines.filter_map(|line| line.split_whitespace().next()).filter(|verb| *verb != "help");
        verbs.map(str::to_owned).collect()
    };
    let has_output = |words: &[&str]| help(words).contains("--output <");
    let verbs = listed(&help(&["--help"])).into_iter().flat_map(|verb| {
        let inner = listed(&help(&[&verb, "--help"]));
        if inner.is_empty() {
            return vec![verb];
        }
        inner.into_iter().map(|inner| format!("{verb} {inner}")).collect()
    });
    let of_verb = |verb: &String| has_output(&[verb.split(' ').collect(), vec!["--help"]].concat());
    verbs.filter(of_verb).collect()
}

#[test]
fn a_verb_that_fails_says_so_in_json_with_its_exit_code() {
    let fail = |words: &[&str]| {
        let output = super::ratelimit(&[words, &["--output", "json"]].concat());
        let answer: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{words:?}: {error}: {}", stdout(&output)));
        assert_eq!(answer["version"], 1, "{words:?}: {answer}");
        assert_eq!(stdout(&output).lines().count(), 1, "{words:?}: some verbs answer line by line");
        let error = &answer["error"];
        assert_eq!(error["code"].as_i64(), output.status.code().map(i64::from), "{words:?}: {answer}");
        assert_ne!(output.status.code(), Some(0), "{words:?}");
        let message = error["message"].as_str().unwrap();
        assert!(!message.is_empty() && !stderr(&output).is_empty(), "{words:?}: {answer}");
    };
    for command in FAILING {
        let mut words: Vec<&str> = command.split(' ').collect();
        if !["check"].contains(&words[0]) {
            words.extend(["--state", "/nonexistent"]);
        }
        if ["status", "stats"].contains(&words[0]) {
            words.extend(["--pin", "/nonexistent"]);
        }
        fail(&words);
    }
    fail(&["detach", "--state", "/nonexistent", "--pin", "/nonexistent"]);
    fail(&["replay", "/nonexistent.pcap", "--policy", "/nonexistent.toml"]);
    // A command line that is not understood.
    fail(&["statsu"]);
    fail(&["status", "--nonsense"]);
    fail(&["block", "add"]);
    let covered = |verb: &String| FAILING.iter().any(|command| command.starts_with(verb.as_str()));
    let apart = ["detach", "replay"];
    let missing: Vec<String> = verbs_with_output()
        .into_iter()
        .filter(|verb| !covered(verb) && !apart.contains(&verb.as_str()))
        .collect();
    assert!(missing.is_empty(), "no failing command of {missing:?}");
}

#[test]
fn json_of_every_verb_has_the_fields_that_the_documentation_names() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    let file = edge.policy();
    let file = file.to_str().unwrap();
    let clients = edge.dir().join("clients.txt");
    fs::write(&clients, "web 203.0.113.7 5 0\n").unwrap();
    let answers: [(&[&str], &str, bool); 22] = [
        (&["block", "add", "198.51.100.0/24", "--for", "10m"], "Orders", true),
        (&["allow", "add", "192.0.2.0/24"], "Orders", true),
        (&["status"], "`status`", true),
        (&["stats"], "`stats`", true),
        (&["top", "--once"], "`top`", true),
        (&["explain", "203.0.113.7"], "`explain`", true),
        (&["explain", "198.51.100.7"], "`explain`", true),
        (&["block", "list"], "`block list`, `allow list`", false),
        (&["allow", "list"], "`block list`, `allow list`", false),
        (&["attacks", "list"], "`attacks list`, `attacks show`", false),
        (&["limit", "list"], "`limit list`, `limit get`", true),
        (&["limit", "get", "source.packets"], "`limit list`, `limit get`", false),
        (&["user", "list"], "`user list`, `user get`", true),
        (&["user", "get", "acme"], "`user list`, `user get`", false),
        (&["test", "--user", "ann", "--api", "search"], "`test`", true),
        (&["known", "import", clients.to_str().unwrap()], "Orders", true),
        (&["known", "show"], "`known show`", false),
        (&["known", "show", "203.0.113.7"], "`known show`", false),
        (&["known", "forget", "203.0.113.7"], "Orders", true),
        (&["apply", file, "--confirm", "1m"], "Orders", true),
        (&["status"], "`status`", false),
        (&["confirm"], "Orders", true),
    ];
    let mut found = Vec::new();
    for (words, section, always) in answers {
        let answer = edge.json(words);
        found.extend(differences(words, section, &answer, always));
        found.extend(
            positional(&answer, "").iter().map(|path| format!("{words:?}: {path} has lists in a list")),
        );
    }
    let check = super::ratelimit(&["check", file, "--output", "json"]);
    let check = serde_json::from_slice(&check.stdout).unwrap();
    found.extend(differences(&["check"], "`check`, `diff`", &check, false));
    edge.write_policy(&POLICY.replace("100/hour", "50/hour"));
    let diff = edge.cli(&["diff", file, "--output", "json"]);
    found.extend(differences(
        &["diff"],
        "`check`, `diff`",
        &serde_json::from_slice(&diff.stdout).unwrap(),
        false,
    ));
    drop(daemon);
    found.extend(differences(&["status"], "`status`", &edge.json(&["status"]), false));
    found.extend(differences(&["stats"], "`stats`", &edge.json(&["stats"]), false));
    found.extend(differences(&["detach"], "Orders", &edge.json(&["detach"]), true));
    assert!(found.is_empty(), "{}", found.join("\n"));
}
