//! Kernel policies from the words an operator would use.

use std::net::Ipv4Addr;

use ratelimit_user::{
    compile::{self, Before, Desired, HostFacts, Names},
    config,
    policy::Policy,
};

/// Prefixes of both families, each once, none around another or around the addresses of tests; the same for the same number.
pub fn prefixes(count: u32) -> impl Iterator<Item = String> {
    let [mut v4, mut v6] = [0_u32, 0];
    (0..count).map(move |number| {
        if number % 2 == 0 {
            v4 += 1;
            format!("{}/26", Ipv4Addr::from_bits(0x4000_0000 + (v4 << 6)))
        } else {
            v6 += 1;
            format!("2001:db8:{:x}:{:x}::/64", v6 >> 16, v6 & 0xffff)
        }
    })
}

/// The tables of so many users who share these prefixes among them, one prefix to a line.
pub fn users(count: usize, prefixes: &[String]) -> String {
    let mut text = String::new();
    for (number, some) in prefixes.chunks(prefixes.len().div_ceil(count)).enumerate() {
        let lines: String = some.iter().map(|prefix| format!("  \"{prefix}\",\n")).collect();
        text += &format!(
            "\n[[user]]\nname = \"u{number}\"\nnetwork = [\"2000000 packets/s\"]\nsources = [\n{lines}]\n"
        );
    }
    text
}

/// A host like the ones tests run on.
pub const FACTS: HostFacts = HostFacts {
    cpus: 2,
    tick_ns: 4_000_000,
    secret: [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03],
    cookies: true,
    translated: Vec::new(),
    window_scale: Some(7),
    headroom: true,
    reserve: None,
};

/// The kernel's view of a policy with these limits on every source, and none on the prefixes around them.
pub fn limits(limits: &[&str]) -> Desired {
    source(&format!("ladder = false\nlimits = {limits:?}"))
}

/// The kernel's view of a policy with this `[source]` table.
pub fn source(table: &str) -> Desired {
    policy(&format!("[source]\n{table}\n"))
}

/// The kernel's view of a policy file.
pub fn policy(text: &str) -> Desired {
    // An even generation and an odd one use different tables of users; one is as good as the other.
    compile::desired(&parsed(text), &FACTS, 1, None)
}

/// The policy of a file's text.
pub fn parsed(text: &str) -> Policy {
    config::parse(text, "test.toml").unwrap_or_else(|error| panic!("{error}")).policy
}

/// The kernel's view of a policy with these limits that follows another.
pub fn after(limits: &[&str], generation: u64, before: Option<&ratelimit_common::abi::Policy>) -> Desired {
    let text = format!("[source]\nladder = false\nlimits = {limits:?}\n");
    let names = Names::default();
    let before = before.map(|policy| Before { policy, names: &names, users: &[], desired: None, now_q8: 0 });
    compile::desired(&parsed(&text), &FACTS, generation, before)
}

/// How requests can be counted, all ways.
pub const REQUEST_ALGORITHMS: [&str; 6] = [
    "token-bucket",
    "leaky-bucket",
    "fixed-window",
    "sliding-window",
    "sliding-window-weighted",
    "sliding-log",
];
