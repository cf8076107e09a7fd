//! Windows of sources, services and users, whose lists get other windows and lose them.

use super::{Host, source, users::user};

/// Sends more than all limits together again and again, while lists get windows and lose them: the limit of a day is in all of them.
fn windows_of_lists(policy: impl Fn(&str) -> String) {
    for kind in ["sliding-window", "fixed-window", "sliding-window-weighted"] {
        let day = format!("\"1000 packets/day {kind}\"");
        let lists = [
            format!("\"500 packets/hour {kind}\", {day}"),
            day.clone(),
            format!("{day}, \"990 packets/min {kind}\", \"995 packets/hour {kind}\""),
            format!("\"800 packets/s {kind}\", {day}"),
            format!("\"1000 packets/s burst 1000\", \"1000 packets/day {kind} soft 10%\""),
        ];
        for (first, second) in (0..lists.len()).flat_map(|one| (0..lists.len()).map(move |two| (one, two))) {
            let mut host = Host::new(&policy(&lists[first]));
            for round in 0..6 {
                host.flood(1_500);
                host.wait_ms(10);
                host.change(&policy(&lists[if round % 2 == 0 { second } else { first }]));
            }
            host.flood(1_500);
            let most = if first.max(second) == 4 { 1_100 } else { 1_000 };
            let admitted = host.admitted;
            assert!(admitted <= most, "{admitted} admitted with {} and {}", lists[first], lists[second]);
        }
    }
}

#[test]
fn windows_of_sources_keep_what_they_counted_when_others_come_and_go() {
    windows_of_lists(|list| source(&format!("limits = [{list}]")));
}

#[test]
fn windows_of_services_keep_what_they_counted_when_others_come_and_go() {
    windows_of_lists(|list| {
        let service = "[[service]]\nname = \"all\"\nmatch = { protocol = \"udp\", ports = [\"1-65535\"] }";
        format!("{}{service}\nper_source = [{list}]\n", source("limits = [\"1M packets/s\"]"))
    });
}

#[test]
fn windows_of_users_keep_what_they_counted_when_others_come_and_go() {
    windows_of_lists(user);
}
