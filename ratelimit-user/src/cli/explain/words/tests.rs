use super::*;
use crate::{
    drops::Dropped,
    explain::{CellState, NegativeEntry, SynCookies},
};

fn limit_of(rate: &str, left: u64, capacity: u64, refused_for_ms: Option<u64>) -> LimitState {
    LimitState {
        rate: rate.to_owned(),
        meter: rate.split([' ', '/']).nth(1).unwrap_or_default().to_owned(),
        burst: capacity,
        capacity,
        left,
        full_in_ms: if left < capacity { 2_000 } else { 0 },
        refused_for_ms,
        leased: None,
    }
}

fn account(state: &str, limits: Vec<LimitState>) -> SourceState {
    let cell =
        CellState { is_tracked: state == "entry", tracked_for_ms: 3_100, left: 1_248, capacity: 1_248 };
    SourceState {
        state: state.to_owned(),
        cell: Some(cell),
        denied: None,
        no_room_for_ms: None,
        proven_for_ms: None,
        limits,
    }
}

fn refusal(reason: Reason, applies_to: &str, service: Option<&str>) -> ExplainedRefusal {
    ExplainedRefusal {
        reason: reason.name().to_owned(),
        applies_to: applies_to.to_owned(),
        spares: Vec::new(),
        some_cpus: false,
        service: service.map(str::to_owned),
        for_ms: Some(286_000),
        waived: false,
    }
}

fn fresh() -> Explanation {
    Explanation {
        address: "203.0.113.7".to_owned(),
        at: "2026-11-15T09:12:03Z".to_owned(),
        source: "203.0.113.7/32".to_owned(),
        mode: "enforce".to_owned(),
        verdict: "pass".to_owned(),
        reason: "conforming".to_owned(),
        refusals: Vec::new(),
        allowed_by: Vec::new(),
        blocked_by: Vec::new(),
        user: None,
        own: account("cell", vec![limit_of("5000 packets/s burst 10000", 9_980, 9_980, None)]),
        prefixes: Vec::new(),
        services: Vec::new(),
        host: Vec::new(),
        known: Vec::new(),
        last_drops: Vec::new(),
    }
}

fn headline(explanation: &Explanation) -> String {
    super::headline(explanation, None)
}

fn text(explanation: &Explanation) -> String {
    super::text(explanation, None)
}

/// A packet that was refused this long ago.
fn refused(ms_ago: u64) -> LastDrop {
    let packet = Dropped {
        at: "2026-11-15T09:12:00.250Z".to_owned(),
        source: "203.0.113.7".to_owned(),
        reason: "limit_packets".to_owned(),
        fate: "dropped".to_owned(),
        service: Some("dns".to_owned()),
        protocol: None,
        source_port: None,
        destination: None,
        port: Some(53),
        bytes: 60,
    };
    LastDrop { ms_ago, packet }
}

#[test]
fn a_source_that_floods_is_refused_also_between_two_refusals() {
    let why = "over a limit in packets (limit_packets)";
    let flooding = |ms_ago| Explanation { last_drops: vec![refused(ms_ago)], ..fresh() };
    assert_eq!(
        headline(&flooding(31)),
        format!("REFUSED now and then, a packet 31 ms ago: {why}; its next packet passes")
    );
    assert_eq!(headline(&flooding(LATELY_MS + 1)), "PASSES: within every limit");
    let sender = Talker {
        source: Some("203.0.113.7".to_owned()),
        passed_packets: 5_000,
        dropped_packets: 15_000,
        error_packets: 900,
        ..Talker::default()
    };
    assert_eq!(
        super::headline(&flooding(31), Some(&sender)),
        format!("REFUSED, about 15000 of 20000 packets in the last second: {why}; its next packet passes")
    );
    let decided =
        Explanation { refusals: vec![refusal(Reason::LimitPackets, "packets", None)], ..flooding(31) };
    assert_eq!(
        super::headline(&decided, Some(&sender)),
        format!(
            "REFUSED for another 4 min 46 s: {why}\n  REFUSED, about 15000 of 20000 packets in the last second"
        )
    );
}

#[test]
fn an_address_never_seen_reads_as_what_would_apply() {
    assert_eq!(
        text(&fresh()),
        "203.0.113.7 at 2026-11-15T09:12:03Z\n\
         PASSES: within every limit\n\
         \n\
         source   203.0.113.7/32\n\
         user     none of the policy\n\
         lists    neither blocked nor allowed\n\
         state    none of its own: it shares a cell, which admits 1248 of 1248 packets before the source gets an entry; the cell is not tracked\n\
         \n\
         limits of the source, as its next packet would find them\n\
         \x20 5000 packets/s burst 10000: 9980 of 9980 left\n"
    );
}

#[test]
fn everything_that_is_known_of_a_flooding_address_is_in_the_text() {
    let mut flooding = fresh();
    flooding.own = account("entry", vec![limit_of("5000 packets/s burst 10000", 0, 9_980, Some(1))]);
    flooding.own.denied = Some(NegativeEntry { reason: "limit_packets".to_owned(), for_ms: 286_000 });
    flooding.refusals = vec![refusal(Reason::LimitPackets, "packets", None)];
    flooding.user = Some(UserState {
        name: "acme".to_owned(),
        plan: Some("gold".to_owned()),
        prefix: Some("203.0.113.0/24".to_owned()),
        limits: vec![limit_of("20000 packets/s burst 40000", 120, 39_980, None)],
    });
    flooding.prefixes = vec![PrefixState {
        prefix: "203.0.113.0/24".to_owned(),
        multiple: 32,
        state: "cell".to_owned(),
        capacity: 320,
        left: 320,
        full_in_ms: 0,
        refused_for_ms: None,
        share_percent: None,
    }];
    flooding.services = vec![ServiceState {
        service: "web".to_owned(),
        on_limit: "monitor".to_owned(),
        per_source: Some(account("cell", vec![limit_of("5 syns/s burst 8", 3, 8, None)])),
        totals: vec![limit_of("900 packets/s burst 900", 700, 700, None)],
        syn_cookies: Some(SynCookies { threshold: "1000 syns/s burst 1000".to_owned(), active_for_ms: None }),
    }];
    assert_eq!(
        text(&flooding),
        "203.0.113.7 at 2026-11-15T09:12:03Z\n\
         REFUSED for another 4 min 46 s: over a limit in packets (limit_packets)\n\
         \n\
         source   203.0.113.7/32\n\
         user     acme, plan gold, by its prefix 203.0.113.0/24\n\
         lists    neither blocked nor allowed\n\
         state    an entry of its own; its cell is tracked for another 3.1 s\n\
         denied   limit_packets: every packet for another 4 min 46 s\n\
         \n\
         limits of the source\n\
         \x20 5000 packets/s burst 10000: 0 of 9980 left, REFUSED for another 1 ms, full again in 2.0 s\n\
         \n\
         limits of user acme, shared by all its addresses\n\
         \x20 20000 packets/s burst 40000: 120 of 39980 left, full again in 2.0 s\n\
         \n\
         prefixes around it, each shared by all its addresses\n\
         \x20 203.0.113.0/24, 32 sources' worth: 320 of 320 packets left\n\
         \n\
         service web, on trial: its limits drop nothing\n\
         \x20 this source: 5 syns/s burst 8: 3 of 8 left, full again in 2.0 s\n\
         \x20 everybody: 900 packets/s burst 900: 700 of 700 left\n\
         \x20 SYNs above 1000 syns/s burst 1000 are answered with cookies: not now\n"
    );
}

#[test]
fn the_headline_says_what_becomes_of_packets_and_for_how_long() {
    let block = |left: Option<u64>| BlockMatch {
        prefix: "203.0.113.0/24".to_owned(),
        until: left.map(|_| "2026-11-15T09:22:03Z".to_owned()),
        seconds_left: left,
        reason: Some("syn flood".to_owned()),
    };
    let blocked = |left| Explanation {
        refusals: vec![refusal(Reason::Blocked, "packets", None)],
        blocked_by: vec![block(left)],
        ..fresh()
    };
    assert_eq!(
        headline(&blocked(Some(600))),
        "BLOCKED until 2026-11-15T09:22:03Z, for another 10 min, by entry 203.0.113.0/24 (reason: syn flood)"
    );
    assert_eq!(
        headline(&blocked(None)),
        "BLOCKED until somebody removes it, by entry 203.0.113.0/24 (reason: syn flood)"
    );
    let allowed = Explanation { allowed_by: vec!["203.0.113.7/32".to_owned()], ..blocked(None) };
    assert!(headline(&allowed).starts_with("PASSES: it is on the allow list"));
    assert!(!text(&allowed).contains("limits of the source"), "no limit applies");
    let partly = vec![
        refusal(Reason::LimitSyns, "syns", None),
        ExplainedRefusal { waived: true, ..refusal(Reason::ServiceTotal, "packets", Some("dns")) },
    ];
    assert_eq!(
        headline(&Explanation { refusals: partly, ..fresh() }),
        "PASSES now, but:\n\
         \x20 new TCP connections are refused for another 4 min 46 s: over a limit in SYNs, the packets that open connections (limit_syns)\n\
         \x20 packets for service dns would be refused for another 4 min 46 s: everybody together has used up what the service takes \
         (service_total)"
    );
    let spared =
        ExplainedRefusal { spares: vec!["syns".to_owned()], ..refusal(Reason::HostTotal, "packets", None) };
    // What refuses those has another reason, and nothing is left to pass.
    let nothing = vec![spared.clone(), refusal(Reason::LimitSyns, "syns", None)];
    assert!(headline(&Explanation { refusals: nothing, ..fresh() }).starts_with("REFUSED for another 4 min"));
    assert_eq!(
        headline(&Explanation { refusals: vec![spared], ..fresh() }),
        "PASSES now, but:\n\
         \x20 packets other than syns are refused for another 4 min 46 s: everybody together has used up what the host takes (host_total)"
    );
    let elsewhere = ExplainedRefusal { some_cpus: true, ..refusal(Reason::HostTotal, "packets", None) };
    assert_eq!(
        headline(&Explanation { refusals: vec![elsewhere], ..fresh() }),
        "PASSES now, but:\n\
         \x20 packets that come in on some CPUs are refused for another 4 min 46 s: everybody together has used up what the host takes (host_total)"
    );
    let held = account("entry", vec![limit_of("200 packets/s burst 400", 1, 394, None)]);
    assert_eq!(
        headline(&Explanation { own: held, ..fresh() }),
        "PASSES now, but:\n\
         \x20 hardly anything is left of the source: 200 packets/s burst 400: 1 of 394 left, full again in 2.0 s"
    );
    let mut trial = Explanation { mode: "monitor".to_owned(), ..blocked(None) };
    trial.refusals[0] = ExplainedRefusal { waived: true, ..refusal(Reason::LimitUser, "packets", None) };
    assert_eq!(
        headline(&trial),
        "mode = \"monitor\": nothing is dropped, only counted\n\
         WOULD BE REFUSED for another 4 min 46 s: its user has used up what all its addresses share (limit_user)"
    );
}

#[test]
fn a_source_that_is_more_than_the_address_is_said_to_be_one() {
    let v6 = Explanation { address: "2001:db8::1".to_owned(), source: "2001:db8::/64".to_owned(), ..fresh() };
    assert!(text(&v6).contains("source   2001:db8::/64, which is limited as one\n"), "{}", text(&v6));
}

#[test]
fn spans_of_time_have_two_units_at_most() {
    for (ms, words) in [
        (1, "1 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (59_999, "59.9 s"),
        (60_000, "1 min"),
        (286_400, "4 min 46 s"),
        (3_600_000, "1 h"),
        (90_061_000, "1 d 1 h"),
        (u64::MAX, "213503982334 d 14 h"),
    ] {
        assert_eq!(span(ms), words);
    }
}

#[test]
fn the_last_drops_are_told_with_time_reason_and_what_became_of_them() {
    let mut dropped = fresh();
    let LastDrop { packet, .. } = refused(0);
    let older = Dropped {
        at: "2026-11-15T09:10:00.000Z".to_owned(),
        reason: "cookie_invalid".to_owned(),
        fate: "would_drop".to_owned(),
        service: None,
        port: None,
        ..packet.clone()
    };
    dropped.last_drops =
        vec![LastDrop { ms_ago: 2_750, packet }, LastDrop { ms_ago: 123_000, packet: older }];
    let expected = "\n\
         last refused packets, a sample of them\n\
         \x20 2026-11-15T09:12:00.250Z, 2.7 s ago: dropped for service dns, port 53: over a limit in packets (limit_packets)\n\
         \x20 2026-11-15T09:10:00.000Z, 2 min 3 s ago: would drop: (cookie_invalid)\n";
    assert!(text(&dropped).ends_with(expected), "{}", text(&dropped));
    dropped.allowed_by = vec!["203.0.113.7/32".to_owned()];
    assert!(text(&dropped).ends_with(expected), "also if it is allowed by now");
}

#[test]
fn a_claim_is_told_and_otherwise_the_share() {
    let client = |state: &str| RememberedClient {
        state: state.to_owned(),
        seconds_since_served: 69,
        packets_per_second: 5.125,
        claim_packets_per_second: 20.5,
        claim_used_percent: 7,
    };
    let at = |service: Option<&str>, client| ClientPrecedence {
        service: service.map(str::to_owned),
        newcomers: "1/16".to_owned(),
        client,
    };
    let known = vec![at(Some("dns"), Some(client("known"))), at(None, Some(client("candidate")))];
    let text = text(&Explanation { known, ..fresh() });
    let not = "not a known client; shares 1/16 of the total with all others, and what known clients leave if it has an entry of its own";
    assert!(
        text.ends_with(&format!(
            "\nwhen a total is spent\n  service dns: a known client, served 5.12 packets/s on average, last 1 min 9 s ago; up to 20.50 packets/s come first, 7 % of that is used\n  packets of no service: {not}\n"
        )),
        "{text}"
    );
    assert!(!super::text(&fresh(), None).contains("when a total"), "without a total");
}
