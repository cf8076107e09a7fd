//! Limits of every kind that are raised while a source is at them: the source has the new rate at once, and nothing for nothing.

use ratelimit_tests::policies;

use super::{Host, SECOND, source};

/// What a limit is for.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Source,
    /// Of sources without a prefilter, in front of whose entries there are no cells.
    Ungated,
    PerSource,
    User,
    Total,
    /// Of a source with an entry, for which totals keep a part back.
    TrackedTotal,
    HostTotal,
    /// Of the prefix around a source, which has the source's own limit once.
    Prefix,
}

const KINDS: [Kind; 8] = [
    Kind::Source,
    Kind::Ungated,
    Kind::PerSource,
    Kind::User,
    Kind::Total,
    Kind::TrackedTotal,
    Kind::HostTotal,
    Kind::Prefix,
];

impl Kind {
    fn policy(self, rate: &str) -> String {
        const WIDE: &str = "limits = [\"10M packets/s burst 100M\"]";
        let limits = format!("limits = [{rate:?}]");
        let service = "[[service]]\nname = \"s\"\nmatch = { protocol = \"udp\", ports = [\"1-65535\"] }\n";
        match self {
            Self::Source => source(&limits),
            Self::Ungated => source(&format!("gate = false\n{limits}")),
            Self::PerSource => format!("{}{service}per_source = [{rate:?}]\n", source(WIDE)),
            Self::User => format!(
                "{}[[user]]\nname = \"acme\"\nsources = [\"192.0.2.0/24\"]\nnetwork = [{rate:?}]\n",
                source(WIDE)
            ),
            Self::Total => format!("{}{service}total = [{rate:?}]\n", source(WIDE)),
            Self::TrackedTotal => {
                format!("{}{service}total = [{rate:?}]\n", source(&format!("gate = false\n{WIDE}")))
            }
            Self::Prefix => {
                format!("[source]\ngate = false\n{limits}\nladder = {{ ipv4 = [\"/24 x1\"], ipv6 = [] }}\n")
            }
            Self::HostTotal => format!("[host]\ntotal = [{rate:?}]\n{}", source(WIDE)),
        }
    }
}

/// A limit before and after, in packets each second and at once.
const RAISES: [[(u64, u64); 2]; 6] = [
    [(1_000, 1_000), (10_000, 1_000)],
    [(1_000, 1_000), (1_030, 1_000)],
    [(1_000, 10_000), (1_500, 10_000)],
    [(1_000, 1_000), (100_000, 1_000)],
    [(300, 3_000), (600, 6_000)],
    [(10, 1_000), (5_000, 5_000)],
];

/// A raised limit of a kind, under a clock with a lag or beside the express lane.
fn raise(kind: Kind, [(rate, burst), (faster, wider)]: [(u64, u64); 2], lag_ms: u64, lane: bool) {
    let scene = format!("{kind:?}, {rate} burst {burst} to {faster} burst {wider}, {lag_ms} ms, lane {lane}");
    let mut host = Host::new(&kind.policy(&format!("{rate} packets/s burst {burst}")));
    host.memory.lag_ns.set(lag_ms * 1_000_000);
    host.memory.express.set(lane);
    // The whole burst, and then what the rate gives.
    host.flood(burst + 100);
    for _ in 0..50 {
        host.wait_ms(20);
        host.flood(rate / 50 + 10);
    }
    while host.flood(1) == 1 {}
    host.change(&kind.policy(&format!("{faster} packets/s burst {wider}")));
    // A CPU takes a portion of a total at a time, and waits until there is one.
    let portion_ms = match kind {
        Kind::Total | Kind::TrackedTotal | Kind::HostTotal => {
            1_000 * wider / faster / 32 / u64::from(policies::FACTS.cpus)
        }
        _ => 0,
    };
    // A prefix whose burst lasts shorter than before squeezes its sources until it owes less than half of that: see decision 28.
    let squeezed_ms = match kind {
        Kind::Prefix if wider * rate < burst * faster => 500 * wider / faster,
        _ => 0,
    };
    let silent_ms = (0..4_000).position(|_| {
        let passed = host.flood(1) == 1;
        host.wait_ms(1);
        passed
    });
    let most_ms = 20 + portion_ms + squeezed_ms;
    assert!(silent_ms.is_some_and(|ms| ms as u64 <= most_ms), "{scene}: silent for {silent_ms:?} ms");
    for _ in 0..squeezed_ms / 2 {
        host.flood(faster / 250 + 1);
        host.wait_ms(2);
    }
    let (admitted, start_ns) = (host.admitted, host.memory.now_ns.get());
    for _ in 0..500 {
        host.flood(faster / 250 + 1);
        host.wait_ms(2);
    }
    let since_ns = host.memory.now_ns.get() - start_ns;
    let (given, due) = (host.admitted - admitted, faster * since_ns / SECOND);
    assert!(given + faster * portion_ms / 1_000 >= due * 97 / 100, "{scene}: {given} of {due} in a second");
    let most = burst.max(wider) + faster * (host.memory.now_ns.get() - host.start) / SECOND;
    assert!(host.admitted <= most, "{scene}: {} admitted, {most} are the most", host.admitted);
}

#[test]
fn a_raised_limit_admits_within_milliseconds() {
    for kind in KINDS {
        for rates in RAISES {
            raise(kind, rates, 0, false);
            raise(kind, rates, 4, true);
        }
    }
}
