//! Programs and libraries that were written for Redis.

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use ratelimit_tests::service::Service;

use super::service;

fn run(mut command: Command) -> Output {
    let shown = format!("{command:?}");
    command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{shown}: {error}; run cargo xtask test"))
}

fn cli(service: &Service, words: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &service.resp.port().to_string()]).args(words);
    let output = run(command);
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

#[test]
fn redis_cli_works() {
    let service = service();
    assert_eq!(cli(&service, &["PING"]), "PONG");
    assert_eq!(cli(&service, &["CL.THROTTLE", "k", "1", "1", "60"]), "0\n2\n1\n-1\n60");
    assert!(cli(&service, &["-3", "CHECK", "ann", "search"]).starts_with("1\n4\n-1\n"));
    assert!(cli(&service, &["-2", "CHECK", "ann", "search"]).starts_with("1\n3\n-1\n"));
    assert!(cli(&service, &["COMMAND", "DOCS", "check"]).contains("Decides about a request"));
    assert!(cli(&service, &["INFO"]).contains("server_name:ratelimit"));
    assert!(cli(&service, &["GET", "x"]).starts_with("ERR unknown command 'GET'"));
}

/// At a terminal it reads what `COMMAND DOCS` says, for help while somebody types.
#[test]
fn redis_cli_works_at_a_terminal() {
    let service = service();
    let mut command = Command::new("script");
    command.args(["-qec", &format!("redis-cli -p {}", service.resp.port()), "/dev/null"]);
    // Of other terminals it would want to know where the cursor is.
    command.env("TERM", "dumb").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("script");
    let mut typed = child.stdin.take().expect("a terminal");
    typed.write_all(b"CHECK ann search\nHELP check\nPING done\nQUIT\n").expect("type");
    drop(typed);
    let output = child.wait_with_output().expect("an end");
    let text = String::from_utf8_lossy(&output.stdout);
    for part in ["\"allowed\"", "Decides about a request", "\"done\""] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn redis_benchmark_works() {
    let service = service();
    let port = service.resp.port().to_string();
    for pipeline in ["1", "16"] {
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", &port, "-n", "20000", "-c", "20", "-P", pipeline, "-r", "1000", "--csv"]);
        command.args(["CL.THROTTLE", "key:__rand_int__", "15", "30", "60"]);
        let output = run(command);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("CL.THROTTLE"), "{output:?}");
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(!complaints.contains("Error"), "{complaints}");
    }
    let usage = cli(&service, &["INFO"]);
    assert!(usage.contains("keys:1000"), "{usage}");
}

#[test]
fn the_python_client_works_in_both_versions() {
    let service = service();
    let mut command = Command::new("python-redis");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/requests/resp/client.py"));
    command.arg(service.resp.port().to_string());
    let output = run(command);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "2 done\n3 done\n", "{}", String::from_utf8_lossy(&output.stderr));
}
