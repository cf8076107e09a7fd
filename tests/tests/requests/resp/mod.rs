//! The decision service in the protocol of Redis: what clients of Redis ask of any server, and what only this one answers.

mod access;
mod bounds;
mod check;
mod clients;
mod commands;
mod throttle;

use std::net::TcpStream;

use ratelimit_tests::{resp::Caller, service::Service};

/// Limits that tests count on.
const POLICY: &str = r#"
[source]
limits = ["1000000 packets/s"]
[requests]
threads = 1
keys = 10000
[[api]]
name = "search"
key = ["user"]
limits = ["5/hour burst 5"]
[[api]]
name = "page"
key = ["user", "ip", "tenant"]
limits = ["2/hour burst 2"]
[[api]]
name = "queue"
key = ["user"]
limits = ["20/s burst 5"]
algorithm = "leaky-bucket"
on_limit = "delay 2s"
[[api]]
name = "free"
key = ["user"]
limits = []
"#;

fn service() -> Service {
    Service::start(POLICY)
}

/// A service with a limit of open files that it cannot raise.
fn service_with_open_files(most: u32) -> Service {
    Service::start_limited(POLICY, "", most)
}

fn caller(service: &Service) -> Caller<TcpStream> {
    Caller::connect(service.resp)
}
