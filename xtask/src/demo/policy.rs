//! The built-in policy: numbers that a browsing person never reaches and a flood passes in a few milliseconds. README.md shows it too.

pub(crate) const BUILT_IN: &str = r#"[source]
limits = ["2000 packets/s burst 4000", "100 syns/s burst 200"]

[host]
total = ["50000 packets/s"]
"#;
