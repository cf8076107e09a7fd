//! The benchmark itself, in small: it measures, its limits hold, and it cleans up. No speed is asserted here.

use std::process::Command;

use ratelimit_tests::daemon::binary;
use serde_json::Value;

fn bench(words: &[&str]) -> Value {
    let done =
        Command::new(binary("bench")).args(words).args(["--quick", "--output", "json"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn one_source_is_held_to_its_limit_while_the_rig_measures() {
    let report = bench(&["--only", "one-core", "--only", "1", "--only", "ours"]);
    let cells = report["one_core"][0]["cells"].as_array().unwrap();
    let names: Vec<_> = cells.iter().map(|cell| cell["contestant"].as_str().unwrap()).collect();
    assert_eq!(names, ["bare", "ours"]);
    for cell in cells {
        assert_eq!(cell["rounds"].as_array().unwrap().len(), 11);
        assert!(cell["spread"]["min"].as_f64().unwrap() > 10_000.0, "{cell}");
    }
    let passed = |cell: &Value| cell["beside_spread"]["median"].as_f64().unwrap();
    // Now and then a packet of the kernel's own, such as a router solicitation.
    assert!(passed(&cells[0]) < 50.0, "a bare drop passes nothing: {}", cells[0]);
    // 1000 packets/s. A round is 50 ms, and what came back before it is spent by then.
    assert!((1.0..1_500.0).contains(&passed(&cells[1])), "{}", cells[1]);
}

#[test]
#[ignore = "long: how the benchmark measures, and nothing of the limiter"]
fn honest_clients_get_through_both_floods_while_the_rig_measures() {
    let report = bench(&["--only", "honest", "--rounds", "1"]);
    let (goodput, syns) = (&report["honest"]["goodput"], &report["honest"]["syn_flood"]);
    let positive = |value: &Value| value.as_f64().unwrap() > 0.0;
    // How much of it is left beside a flood is a matter of the machine; that it is measured is not.
    assert!(positive(&goodput["calm"][0]) && goodput["flooded"][0].is_f64(), "{goodput}");
    assert!(positive(&goodput["flood_per_second"]["min"]), "{goodput}");
    assert!(goodput["connections"]["attempted"].as_u64().unwrap() > 1, "{goodput}");
    assert!(positive(&syns["syns_per_second"]["min"]), "{syns}");
    // Cookies are sent from 1000 SYNs a second on.
    assert!(syns["answered"].as_u64().unwrap() > 1_000, "{syns}");
    let visits = &syns["connections"];
    assert!(visits["attempted"].as_u64().unwrap() > visits["failed"].as_u64().unwrap(), "{syns}");
    let targets: Vec<_> = report["targets"].as_array().unwrap().iter().map(|one| &one["case"]).collect();
    assert_eq!(targets, ["goodput", "connections", "syn flood"]);
}

#[test]
#[ignore = "long: how the benchmark measures, and nothing of the limiter"]
fn known_clients_are_counted_in_every_scene() {
    let report = bench(&["--only", "known", "--rounds", "1"]);
    let rows = report["known"]["rows"].as_array().unwrap();
    let wanted: Vec<_> = rows.iter().map(|row| row["wanted"].is_f64()).collect();
    assert_eq!(wanted, [true, true, true, true, true, false], "{rows:?}");
    for row in rows {
        assert!(row["answered_without_limit"].as_u64() > Some(0) && row["sent"] == 120, "{row}");
        assert!(row["flood_per_second"]["min"].as_f64().unwrap() > 100_000.0, "{row}");
    }
    assert_eq!(report["known"]["costs"].as_array().unwrap().len(), 3);
    assert_eq!(report["targets"].as_array().unwrap().len(), 9);
}

#[test]
#[ignore = "long: how the benchmark measures, and nothing of the limiter"]
fn a_change_of_one_line_of_a_long_policy_is_measured_beside_all_of_it() {
    let report = bench(&["--only", "apply", "--rounds", "1"]);
    let steps = report["apply"].as_array().unwrap();
    let told: Vec<_> =
        steps.iter().map(|step| (step["what"].as_str().unwrap(), &step["list_entries_written"])).collect();
    let written = [100_000, 2, 0, 100_000].map(Value::from);
    let names = ["all 100 000 prefixes", "one prefix", "one limit", "back to none"];
    assert_eq!(told, names.into_iter().zip(&written).collect::<Vec<_>>());
    for step in steps {
        let ms = |key: &str| step[key][0].as_f64().unwrap();
        assert!(ms("daemon_ms") > 0.0 && ms("daemon_ms") < ms("command_ms"), "{step}");
    }
}

#[test]
fn a_name_that_does_not_exist_is_answered_with_those_that_do() {
    let done = Command::new(binary("bench")).args(["--only", "everything"]).output().unwrap();
    assert!(!done.status.success());
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("spoofed") && said.contains("iptables") && said.contains("paths"), "{said}");
}

#[test]
#[ignore = "long: how the benchmark measures, and nothing of the limiter"]
fn the_engine_is_measured_beside_governor_and_what_a_million_users_take_beside_its_target() {
    let report = bench(&["--requests", "--only", "library,memory", "--rounds", "1"]);
    let comparisons = report["comparisons"].as_array().unwrap();
    let cells = |at: usize| comparisons[at]["cells"].as_array().unwrap();
    let names =
        |at: usize| -> Vec<_> { cells(at).iter().map(|cell| cell["contestant"].as_str().unwrap()).collect() };
    assert_eq!(names(0), ["ours", "governor"], "{}", report["notes"]);
    assert_eq!(names(1), ["counter", "bucket", "sub-windows"], "{}", report["notes"]);
    for cell in cells(0).iter().chain(cells(1)) {
        assert!(cell["rounds"][0].as_f64().unwrap() > 1.0, "{cell}");
    }
    let judged = report["targets"].as_array().unwrap();
    assert_eq!(judged.len(), 4, "{judged:?}");
    assert!(judged.iter().all(|one| one["met"].is_boolean()), "{judged:?}");
}

#[test]
fn a_part_of_requests_that_does_not_exist_is_answered_with_those_that_do() {
    let done = Command::new(binary("bench")).args(["--requests", "--only", "resp,spoofed"]).output().unwrap();
    assert!(!done.status.success());
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("--only spoofed") && said.contains("resp, http, grpc"), "{said}");
}
