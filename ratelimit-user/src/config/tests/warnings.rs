//! What is allowed but probably not meant.

use super::warnings;

#[test]
fn what_is_allowed_but_probably_not_meant_is_a_warning() {
    let text = "[source]\nlimits = [\"1/s\"]\nipv6_prefix = 128\n[listen]\nmetrics = \"0.0.0.0:9464\"\n";
    assert_eq!(
        warnings(text),
        [
            "p.toml:3:15: ipv6_prefix = 128: whoever has one /64 owns 2^64 sources",
            "p.toml:5:11: metrics on 0.0.0.0:9464 can be read by anybody who reaches it",
        ]
    );
    let usual = "[source]\nlimits = [\"1/s\"]\nipv6_prefix = 64\n[listen]\nmetrics = \"127.0.0.1:9464\"\n";
    assert_eq!(warnings(usual), [""; 0]);
}
