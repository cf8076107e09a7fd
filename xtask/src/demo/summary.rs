//! Formats results for people: the live line of each second and the table at the end. Pure text, no I/O.

use std::time::Duration;

use super::daemon::Counters;
use super::people::{AttackSent, GoodClientSaw, Replies};

/// One second of the live view.
pub(super) struct Moment {
    pub(super) at: Duration,
    pub(super) lasted: Duration,
    pub(super) xdp: Counters,
    pub(super) reached: u64,
}

pub(super) const LIVE_HEADER: &str = "   time    arrived/s     passed/s    dropped/s   attack at socket/s";

pub(super) fn live_line(moment: &Moment) -> String {
    let per_sec = |packets| per_sec(packets, moment.lasted);
    let Counters { passed, dropped, .. } = moment.xdp;
    format!(
        "{:>5.1} s {:>12} {:>12} {:>12} {:>20}",
        moment.at.as_secs_f64(),
        per_sec(passed + dropped),
        per_sec(passed),
        per_sec(dropped),
        per_sec(moment.reached)
    )
}

/// Everything the two phases have measured.
pub(super) struct Measured {
    pub(super) before: GoodClientSaw,
    pub(super) during: GoodClientSaw,
    pub(super) attack: AttackSent,
    pub(super) attack_lasted: Duration,
    /// Packets that were sent but never seen by XDP, because the queue of the virtual wire was full.
    pub(super) lost_on_wire: u64,
    /// The counters of the attack phase, all sources together.
    pub(super) xdp: Counters,
    /// Datagrams of the UDP attacker that reached the server's socket.
    pub(super) reached: u64,
}

impl Measured {
    fn per_sec(&self, packets: u64) -> String {
        per_sec(packets, self.attack_lasted)
    }
}

pub(super) fn table(measured: &Measured) -> String {
    let Measured { before, during, attack, lost_on_wire, xdp, reached, .. } = measured;
    let amount = |name: &str, packets: u64| row(name, &grouped(packets), &measured.per_sec(packets));
    let mut lines = vec![
        row("attack", "packets", "per second"),
        amount("  UDP datagrams the attacker sent", attack.udp),
        amount("  SYNs the second attacker sent", attack.syns),
    ];
    if *lost_on_wire > 0 {
        lines.push(amount("  lost on the wire, its queue was full", *lost_on_wire));
    }
    lines.push(amount("  dropped at XDP", xdp.dropped));
    let reasons = xdp.drops_by_reason.iter().filter(|(_, packets)| *packets > 0);
    lines.extend(reasons.map(|(reason, packets)| amount(&format!("    because of {reason}"), *packets)));
    lines.push(amount("  passed at XDP, good client included", xdp.passed));
    lines.push(amount("  attack datagrams that reached the socket", *reached));
    lines.push(String::new());
    lines.push(row("good client", "before", "during"));
    for (name, lost_is, before, during) in [
        ("ping", "lost", &before.ping, &during.ping),
        ("ping over IPv6", "lost", &before.ping_v6, &during.ping_v6),
        ("TCP requests", "failed", &before.tcp, &during.tcp),
    ] {
        lines.push(row(&format!("  {name}, {lost_is}"), &lost(before), &lost(during)));
        lines.push(row(&format!("  {name}, median time"), &median(before), &median(during)));
    }
    lines.join("\n") + "\n"
}

fn row(name: &str, first: &str, second: &str) -> String {
    format!("{name:<44} {first:>14} {second:>14}")
}

/// Returns the result as one sentence.
pub(super) fn verdict(measured: &Measured) -> String {
    let during = &measured.during;
    let lost = during.ping.lost + during.ping_v6.lost + during.tcp.lost;
    let client =
        if lost == 0 { "lost nothing".to_owned() } else { format!("lost {lost} packets or requests") };
    format!(
        "The flood of {} packets/s was cut to {} packets/s; the good client next to it {client}.",
        measured.per_sec(measured.attack.udp),
        measured.per_sec(measured.reached)
    )
}

fn lost(replies: &Replies) -> String {
    format!("{} of {}", grouped(replies.lost), grouped(replies.asked))
}

fn median(replies: &Replies) -> String {
    replies.median_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2} ms"))
}

fn per_sec(packets: u64, during: Duration) -> String {
    grouped((packets as f64 / during.as_secs_f64()).round() as u64)
}

/// Formats 3104233 as "3 104 233".
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saw(lost: u64) -> GoodClientSaw {
        let replies = |asked, median_ms| Replies { asked, lost, median_ms };
        GoodClientSaw {
            ping: replies(300, Some(0.04)),
            ping_v6: replies(300, Some(0.05)),
            tcp: replies(120, None),
        }
    }

    fn measured(lost: u64) -> Measured {
        Measured {
            before: saw(0),
            during: saw(lost),
            attack: AttackSent { udp: 3_104_233, syns: 9000 },
            attack_lasted: Duration::from_secs(6),
            lost_on_wire: 0,
            xdp: Counters {
                passed: 20_000,
                dropped: 3_090_000,
                drops_by_reason: vec![("source_packets".into(), 3_082_000), ("blocked".into(), 0)],
            },
            reached: 15_900,
        }
    }

    #[test]
    fn digits_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
    }

    #[test]
    fn a_live_line_shows_rates_for_the_time_that_really_passed() {
        let xdp = Counters { passed: 3000, dropped: 597_000, drops_by_reason: Vec::new() };
        let moment =
            Moment { at: Duration::from_secs(4), lasted: Duration::from_millis(1500), xdp, reached: 1500 };
        let words: Vec<_> =
            live_line(&moment).split("  ").map(|w| w.trim().to_owned()).filter(|w| !w.is_empty()).collect();
        assert_eq!(words, ["4.0 s", "400 000", "2 000", "398 000", "1 000"]);
    }

    #[test]
    fn the_table_has_the_attack_the_drops_by_reason_and_the_good_client_before_and_during() {
        let text = table(&measured(2));
        let row = |name: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(name));
            line.unwrap_or_else(|| panic!("no row {name:?} in\n{text}")).trim_start()[name.len()..]
                .trim()
                .to_owned()
        };
        assert_eq!(row("UDP datagrams the attacker sent"), "3 104 233        517 372");
        assert_eq!(row("because of source_packets"), "3 082 000        513 667");
        assert_eq!(row("attack datagrams that reached the socket"), "15 900          2 650");
        assert_eq!(row("ping, lost"), "0 of 300       2 of 300");
        assert_eq!(row("TCP requests, median time"), "-              -");
        assert!(!text.contains("wire"), "nothing was lost there:\n{text}");
        assert!(!text.contains("blocked"), "reasons without packets are left out:\n{text}");
        assert!(text.lines().all(|line| line.len() <= 80 && line == line.trim_end()), "{text}");
    }

    #[test]
    fn the_verdict_says_whether_the_good_client_lost_anything() {
        assert_eq!(
            verdict(&measured(0)),
            "The flood of 517 372 packets/s was cut to 2 650 packets/s; the good client next to it lost nothing."
        );
        assert!(verdict(&measured(2)).ends_with("lost 6 packets or requests."));
    }
}
