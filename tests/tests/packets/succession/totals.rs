//! Changes of the totals of the host and of a service.

use super::{Host, SECOND, source};

/// A host and a service with these totals, where sources are not limited.
fn totals(host: &str, service: &str) -> String {
    let list =
        |key: &str, rate: &str| if rate.is_empty() { String::new() } else { format!("{key} = [{rate}]\n") };
    format!(
        "[host]\n{}{}[[service]]\nname = \"s\"\nmatch = {{ protocol = \"udp\", ports = [\"1-65535\"] }}\nper_source = [\"1M packets/s\"]\n{}",
        list("total", host),
        source("gate = false\nlimits = [\"1M packets/s\"]"),
        list("total", service)
    )
}

#[test]
fn totals_that_become_slower_or_get_a_bigger_burst_give_nothing_again() {
    let slow = "\"100 packets/hour burst 2000\"";
    let others = [
        "\"10000 packets/hour burst 2000\"",
        "\"100 packets/hour burst 200\"",
        "\"101 packets/hour burst 200\"",
        "\"200 kB/hour burst 200 kB\"",
        "\"10000 packets/hour burst 2000\", \"1 MB/s burst 10 MB\"",
    ];
    for other in others {
        for place in ["service", "host"] {
            let of = |rate: &str| if place == "host" { totals(rate, "") } else { totals("", rate) };
            let mut host = Host::new(&of(slow));
            let first = host.flood(3_000);
            assert!(first > 1_700, "{first}");
            let start = host.memory.now_ns.get();
            for round in 0..8 {
                host.wait_ms(500);
                host.change(&of(if round % 2 == 0 { other } else { slow }));
                host.flood(3_000);
            }
            let most = 2_000 + 10_000 * (host.memory.now_ns.get() - start) / SECOND / 3_600;
            let admitted = host.admitted;
            assert!(admitted <= most, "{place}: {admitted} admitted, {most} are the most with {other}");
        }
    }
    // Who has not used a total loses nothing by it.
    let mut idle = Host::new(&totals("", "\"10000 packets/hour burst 200\""));
    idle.change(&totals("", slow));
    assert!(idle.flood(3_000) > 1_700);
    let mut half = Host::new(&totals("", "\"10000 packets/hour burst 2000\""));
    assert_eq!(half.flood(1_000), 1_000);
    half.change(&totals("", slow));
    let left = half.flood(3_000);
    assert!((700..=1_000).contains(&left), "a thousand were spent, and what a CPU held: {left} are left");
}
