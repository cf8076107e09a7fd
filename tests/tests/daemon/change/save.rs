//! `limit set --save`: one value of a file, and nothing else in it.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
};

use ratelimit_tests::{answer::assert_answer, daemon::Edge};

use super::{file, in_force, packets};

const COMMENTED: &str = "# Ours. Ask before you change it.\n[source]\nlimits = [\n  \"1000 packets/s\", # ticket 4711\n  \
                         \"100 syns/s\",\n]\n";

#[test]
fn a_limit_is_saved_into_the_file_with_every_comment_in_place() {
    let edge = Edge::new();
    let daemon = edge.start(COMMENTED);
    fs::set_permissions(edge.policy(), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(edge.policy(), Some(65534), Some(65534)).unwrap();
    let saved = edge.cli(&["limit", "set", "source.packets", "2000 packets/s burst 4000", "--save"]);
    assert_answer(
        &saved,
        0,
        &["source.packets is 2000 packets/s burst 4000 from now on; written into", "policy.toml"],
    );
    let expected = COMMENTED.replace("\"1000 packets/s\"", "\"2000 packets/s burst 4000\"");
    assert_eq!(fs::read_to_string(edge.policy()).unwrap(), expected);
    let metadata = fs::metadata(edge.policy()).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.uid(), metadata.gid()), (0o640, 65534, 65534));
    assert_eq!((in_force(&edge), edge.json(&["status"])["policy_changed"].as_bool()), (2000, Some(false)));
    // A limit that is not in the file yet.
    assert_answer(&edge.cli(&["limit", "set", "source.bytes", "40 Mbit/s", "--save"]), 0, &[]);
    let expected = expected.replace("\"100 syns/s\"", "\"100 syns/s\", \"40 Mbit/s\"");
    assert_eq!(fs::read_to_string(edge.policy()).unwrap(), expected);
    // A limit is tried first, then kept.
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "3000/s"]), 0, &[]);
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "3000/s", "--save"]), 0, &[]);
    daemon.kill_9();
    let _daemon = edge.start_again();
    assert_eq!(in_force(&edge), 3000, "a restart reads what was saved");
}

#[test]
fn a_limit_is_not_saved_over_one_that_somebody_else_has_changed() {
    let edge = Edge::new();
    let _daemon = edge.start(COMMENTED);
    let set = |rate: &str| edge.cli(&["limit", "set", "source.packets", rate, "--save"]);
    let theirs = COMMENTED.replace("1000 packets/s", "1234 packets/s");
    edge.write_policy(&theirs);
    let why = &[
        "policy.toml has \"1234 packets/s burst 1234\"",
        "what would be replaced is \"1000 packets/s burst 1000\"",
        "SIGHUP",
    ];
    assert_answer(&set("2000/s"), 2, why);
    edge.write_policy("broken");
    assert_answer(&set("2000/s"), 2, &["policy.toml:1:"]);
    fs::remove_file(edge.policy()).unwrap();
    assert_answer(&set("2000/s"), 2, &["cannot read the policy"]);
    assert!(!edge.policy().exists() && in_force(&edge) == 1000, "nothing was half done");
    // A limit that would make the file a bad one can be set, and cannot be saved.
    edge.write_policy("[source]\nlimits = [\"1000 packets/s\", \"20000 packets/min burst 2000\"]\n");
    assert_answer(&set("100/s burst 200"), 2, &["not written", "never decides"]);
    // What else has changed in the file stays there, and is not put in force by this.
    edge.write_policy(&COMMENTED.replace("100 syns/s", "7 syns/s"));
    assert_answer(&set("2000/s"), 0, &[]);
    assert!(fs::read_to_string(edge.policy()).unwrap().contains("7 syns/s"));
    assert_eq!(edge.json(&["limit", "get", "source.syns"])["amount"], 100);
}

#[test]
fn a_limit_of_an_applied_policy_is_saved_into_the_applied_file() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    let other = file(&edge, "other.toml", COMMENTED);
    assert_answer(&edge.cli(&["apply", &other]), 0, &[]);
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "2000/s", "--save"]), 0, &["other.toml"]);
    assert!(fs::read_to_string(&other).unwrap().contains("\"2000/s\", # ticket 4711"));
    assert_eq!(fs::read_to_string(edge.policy()).unwrap(), packets(1000), "the other file is untouched");
    daemon.kill_9();
    let _daemon = edge.start_again();
    assert_eq!(in_force(&edge), 2000);
}
