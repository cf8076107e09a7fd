//! The prefixes around sources.

use ratelimit_common::abi::Reason;

use crate::testbed::{Host, Table, aggregated, empty, set, udp};

/// Sources have ten packets at once and ten a second, and each /24 has as much as two of them.
fn host() -> Host {
    let mut policy = empty();
    policy.source.set = set(&["10 packets/s burst 10"]);
    policy.aggregation = aggregated(&policy.source.set, 24, 2);
    Host::new(policy)
}

#[test]
fn a_prefix_that_is_in_use_never_begins_again_with_its_cell() {
    let host = host();
    let mut admitted = 0;
    // A minute of addresses that change all the time.
    for round in 0..6_000_u32 {
        admitted += u32::from(host.reason(&udp([7, round as u8], 53, 8)) == Reason::Conforming);
        host.wait_ms(10);
    }
    assert_eq!(host.rows(Table::Prefix), 1);
    // Twice the rate for a minute, and three quarters of twice the burst for those who prove nothing.
    let bound = 60 * 20 + 15;
    assert!((1_190..=bound).contains(&admitted), "{admitted} of at most {bound}");
}
