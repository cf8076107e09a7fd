//! Senders in the network in front of an edge host.

use std::{
    net::IpAddr,
    process::{Child, Stdio},
};

use serde_json::Value;

use crate::daemon::{Edge, binary};

/// Where they send to.
pub const PORT: u16 = 4711;

/// That port of an address.
pub fn socket_address(address: &str) -> String {
    if address.contains(':') { format!("[{address}]:{PORT}") } else { format!("{address}:{PORT}") }
}

/// A sender in the network, started.
pub fn flood(edge: &Edge, from: &str, to: &str, pps: u64, seconds: f64) -> Child {
    edge.wire
        .in_net(binary("traffic"))
        .args(["flood", "--from", from, "--to", &socket_address(to)])
        .args(["--pps", &pps.to_string(), "--for", &seconds.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("start a sender")
}

/// How many it sent.
pub fn sent(child: Child) -> u64 {
    let output = child.wait_with_output().expect("wait for a sender");
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    report["sent"].as_u64().expect("a count")
}

/// An edge host with these addresses in the network in front of it.
pub fn edge_with_sources(sources: &[&str]) -> Edge {
    let edge = Edge::new();
    for source in sources {
        edge.wire.add_source(source.parse::<IpAddr>().expect("an address"));
    }
    edge
}
