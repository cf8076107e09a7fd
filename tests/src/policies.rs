//! Kernel policies from the words an operator would use.

use ratelimit_common::abi;
use ratelimit_user::{compile, config};

/// The kernel's view of a policy with these limits on every source.
pub fn limits(limits: &[&str]) -> abi::Policy {
    source(&format!("limits = {limits:?}"))
}

/// The kernel's view of a policy with this `[source]` table.
pub fn source(table: &str) -> abi::Policy {
    let text = format!("[source]\n{table}\n");
    let loaded = config::parse(&text, "test.toml").unwrap_or_else(|error| panic!("{error}"));
    compile::desired(&loaded.policy, 1)
}
