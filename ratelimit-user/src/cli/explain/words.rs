//! An explanation as text that can be forwarded to somebody who has never heard of buckets.

use std::fmt::Write as _;

use ratelimit_common::abi::{Meter, Reason};

use crate::{
    explain::{
        BlockMatch, ClientPrecedence, ExplainedRefusal, Explanation, LastDrop, LimitState, PrefixState,
        RememberedClient, ServiceState, SourceState, UserState,
    },
    stats::talkers::Talker,
};

/// A bucket with less than this part left is as good as spent: a sixteenth.
const NEARLY_SPENT: u64 = 16;

/// How long ago a packet may have been refused for the source to count as one that is being refused.
const LATELY_MS: u64 = 1_000;

/// Whether packets of the source are being refused, whatever becomes of the next one.
pub(in crate::cli) fn is_refused_lately(explanation: &Explanation) -> bool {
    explanation.allowed_by.is_empty() && explanation.last_drops.iter().any(|drop| drop.ms_ago <= LATELY_MS)
}

/// The whole text. `sender` is the source's traffic in the last second, if that was looked at.
pub(in crate::cli) fn text(explanation: &Explanation, sender: Option<&Talker>) -> String {
    let headline = headline(explanation, sender);
    let mut text = format!("{} at {}\n{headline}\n\n", explanation.address, explanation.at);
    let mut line = |name: &str, words: &str| {
        let _infallible = writeln!(text, "{name:<8} {words}");
    };
    line("source", &source(explanation));
    line("user", &explanation.user.as_ref().map_or("none of the policy".to_owned(), user));
    for words in lists(explanation) {
        line("lists", &words);
    }
    if !explanation.allowed_by.is_empty() {
        drops(&mut text, explanation);
        return text;
    }
    line("state", &state(&explanation.own));
    if let Some(denied) = &explanation.own.denied {
        let words = format!("{}: every packet for another {}", denied.reason, span(denied.for_ms));
        line("denied", &words);
    }
    let whose = if explanation.own.state == "entry" { "" } else { ", as its next packet would find them" };
    section(&mut text, &format!("limits of the source{whose}"), explanation.own.limits.iter().map(limit));
    if let Some(user) = &explanation.user {
        let title = format!("limits of user {}, shared by all its addresses", user.name);
        section(&mut text, &title, user.limits.iter().map(limit));
    }
    section(
        &mut text,
        "prefixes around it, each shared by all its addresses",
        explanation.prefixes.iter().map(prefix),
    );
    let everybody = everybody(explanation.own.state == "entry");
    let host = explanation.host.iter().map(|one| format!("{everybody}: {}", limit(one)));
    section(&mut text, "the host, whatever packets are for", host);
    for service in &explanation.services {
        section(
            &mut text,
            &format!("service {}{}", service.service, trial(service)),
            self::service(service, explanation.own.state == "entry"),
        );
    }
    section(&mut text, "when a total is spent", explanation.known.iter().map(precedence));
    drops(&mut text, explanation);
    text
}

/// What a source may have of a spent total.
fn precedence(ClientPrecedence { service, newcomers, client }: &ClientPrecedence) -> String {
    let place = service.as_ref().map_or("packets of no service".to_owned(), |name| format!("service {name}"));
    let known = client.as_ref().filter(|client| client.state == RememberedClient::KNOWN);
    let Some(client) = known else {
        return format!(
            "{place}: not a known client; shares {newcomers} of the total with all others, and what known clients leave if it has an entry of its own"
        );
    };
    format!(
        "{place}: a known client, served {:.2} packets/s on average, last {} ago; up to {:.2} packets/s come first, {} % of that is used",
        client.packets_per_second,
        span(client.seconds_since_served.saturating_mul(1_000).max(1_000)),
        client.claim_packets_per_second,
        client.claim_used_percent
    )
}

fn drops(text: &mut String, explanation: &Explanation) {
    let lines = explanation.last_drops.iter().map(last_drop);
    section(text, "last refused packets, a sample of them", lines);
}

fn last_drop(LastDrop { ms_ago, packet }: &LastDrop) -> String {
    let service = packet.service.as_ref().map_or(String::new(), |name| format!(" for service {name}"));
    let port = packet.port.map_or(String::new(), |port| format!(", port {port}"));
    let fate = packet.fate.replace('_', " ");
    format!("{}, {} ago: {fate}{service}{port}: {}", packet.at, span(*ms_ago), words(&packet.reason))
}

fn headline(explanation: &Explanation, sender: Option<&Talker>) -> String {
    if !explanation.allowed_by.is_empty() {
        return "PASSES: it is on the allow list, and neither blocks nor limits apply".to_owned();
    }
    let mut lines = Vec::new();
    if explanation.mode == "monitor" {
        lines.push("mode = \"monitor\": nothing is dropped, only counted".to_owned());
    }
    let is_refused = |kind: &String| {
        explanation.refusals.iter().any(|other| other.service.is_none() && other.applies_to == *kind)
    };
    let is_of_all = |one: &&ExplainedRefusal| {
        one.service.is_none()
            && !one.some_cpus
            && one.applies_to == "packets"
            && one.spares.iter().all(is_refused)
    };
    let decisive = explanation.refusals.iter().find(is_of_all);
    match decisive {
        Some(refusal) => {
            let verb = if refusal.waived { "WOULD BE " } else { "" };
            let block =
                explanation.blocked_by.iter().max_by_key(|block| block.seconds_left.unwrap_or(u64::MAX));
            lines.push(match block.filter(|_| refusal.reason == Reason::Blocked.name()) {
                Some(block) => format!("{verb}BLOCKED {}", self::block(block)),
                None => format!("{verb}REFUSED {}: {}", lasting(refusal), why(refusal)),
            });
            lines.extend(sender.map(|sender| format!("  {verb}REFUSED, {}", refused_of(sender))));
        }
        None => {
            let refused = explanation.refusals.iter().map(exception);
            let but: Vec<String> = refused.chain(pressed(explanation)).collect();
            lines.push(match lately(explanation, sender) {
                Some(lately) => lately,
                None if but.is_empty() => "PASSES: within every limit".to_owned(),
                None => "PASSES now, but:".to_owned(),
            });
            lines.extend(but.iter().map(|one| format!("  {one}")));
        }
    }
    lines.join("\n")
}

/// What became of the packets of a source that floods, and whose next packet passes all the same.
fn lately(explanation: &Explanation, sender: Option<&Talker>) -> Option<String> {
    let last = explanation.last_drops.first().filter(|_| is_refused_lately(explanation))?;
    let verb = if last.packet.fate == "would_drop" { "WOULD BE " } else { "" };
    let why = words(&last.packet.reason);
    let how_many = match sender.filter(|sender| sender.dropped_packets > 0) {
        Some(sender) => format!("REFUSED, {}", refused_of(sender)),
        None => format!("REFUSED now and then, a packet {} ago", span(last.ms_ago)),
    };
    Some(format!("{verb}{how_many}: {why}; its next packet passes"))
}

fn refused_of(sender: &Talker) -> String {
    let about = if sender.error_packets > 0 { "about " } else { "" };
    format!("{about}{} of {} packets in the last second", sender.dropped_packets, sender.packets())
}

/// Limits that have hardly anything left. Who floods is refused most of the time, and just not at this moment.
fn pressed(explanation: &Explanation) -> impl Iterator<Item = String> {
    let own = explanation.own.limits.iter().map(|one| ("the source".to_owned(), one));
    let user = explanation.user.iter();
    let user = user.flat_map(|user| user.limits.iter().map(|one| (format!("user {}", user.name), one)));
    let services = explanation.services.iter().flat_map(|service| {
        let limits = service.per_source.iter().flat_map(|account| &account.limits).chain(&service.totals);
        limits.map(|one| (format!("service {}", service.service), one))
    });
    let host = explanation.host.iter().map(|one| ("the host".to_owned(), one));
    let spent = |one: &LimitState| one.refused_for_ms.is_none() && one.left < one.capacity / NEARLY_SPENT;
    let all = own.chain(user).chain(services).chain(host).filter(move |(_, one)| spent(one));
    all.map(|(whose, one)| format!("hardly anything is left of {whose}: {}", limit(one)))
}

/// Some packets that are refused while others pass.
fn exception(refusal: &ExplainedRefusal) -> String {
    let which = match refusal.applies_to.as_str() {
        "syns" => "new TCP connections".to_owned(),
        "fragments" => "fragments".to_owned(),
        _ if refusal.spares.is_empty() => "packets".to_owned(),
        _ => format!("packets other than {}", refusal.spares.join(" and ")),
    };
    let service = refusal.service.as_ref().map_or(String::new(), |name| format!(" for service {name}"));
    let cpus = if refusal.some_cpus { " that come in on some CPUs" } else { "" };
    let place = format!("{service}{cpus}");
    let verb = if refusal.waived { "would be refused" } else { "are refused" };
    format!("{which}{place} {verb} {}: {}", lasting(refusal), why(refusal))
}

fn lasting(refusal: &ExplainedRefusal) -> String {
    refusal.for_ms.map_or("for good".to_owned(), |ms| format!("for another {}", span(ms)))
}

/// A refusal's reason in words, and the name that `stats` counts it under.
fn why(refusal: &ExplainedRefusal) -> String {
    words(&refusal.reason)
}

fn words(reason: &str) -> String {
    let known = Reason::ALL.iter().find(|known| known.name() == reason);
    let words = match known {
        Some(Reason::Blocked) => "on the block list",
        Some(Reason::LimitPackets) => "over a limit in packets",
        Some(Reason::LimitBytes) => "over a limit in bytes",
        Some(Reason::LimitSyns) => "over a limit in SYNs, the packets that open connections",
        Some(Reason::LimitFragments) => "over a limit in fragments",
        Some(Reason::LimitUser) => "its user has used up what all its addresses share",
        Some(Reason::LimitPrefix) => "the addresses around it have used up what they share",
        Some(Reason::ServiceTotal) => "everybody together has used up what the service takes",
        Some(Reason::HostTotal) => "everybody together has used up what the host takes",
        Some(Reason::NewSourceBudget) => "too many new sources at once, and this one is not known",
        _ => "",
    };
    format!("{words} ({reason})").trim_start().to_owned()
}

fn source(explanation: &Explanation) -> String {
    let alone =
        ["/32", "/128"].iter().any(|len| explanation.source == format!("{}{len}", explanation.address));
    let shared = if alone { "" } else { ", which is limited as one" };
    format!("{}{shared}", explanation.source)
}

fn user(user: &UserState) -> String {
    let plan = user.plan.as_ref().map_or(String::new(), |plan| format!(", plan {plan}"));
    let by = user.prefix.as_ref().map_or(String::new(), |prefix| format!(", by its prefix {prefix}"));
    format!("{}{plan}{by}", user.name)
}

fn lists(explanation: &Explanation) -> Vec<String> {
    let allowed = explanation.allowed_by.iter().map(|prefix| format!("allowed by entry {prefix}"));
    let blocked = explanation.blocked_by.iter().map(|one| format!("blocked {}", block(one)));
    let all: Vec<String> = allowed.chain(blocked).collect();
    if all.is_empty() { vec!["neither blocked nor allowed".to_owned()] } else { all }
}

fn block(block: &BlockMatch) -> String {
    let until = match (&block.until, block.seconds_left) {
        (Some(until), Some(left)) => {
            format!("until {until}, for another {}", span(left.saturating_mul(1_000)))
        }
        _ => "until somebody removes it".to_owned(),
    };
    let reason = block.reason.as_ref().map_or(String::new(), |reason| format!(" (reason: {reason})"));
    format!("{until}, by entry {}{reason}", block.prefix)
}

fn state(account: &SourceState) -> String {
    let nothing = "none of its own";
    let Some(cell) = &account.cell else {
        let words = if account.state == "entry" { "an entry of its own" } else { nothing };
        return words.to_owned();
    };
    let tracked = if cell.is_tracked {
        format!("tracked for another {}", span(cell.tracked_for_ms))
    } else {
        "not tracked".to_owned()
    };
    match account.state.as_str() {
        "entry" => format!("an entry of its own; its cell is {tracked}"),
        _ => format!(
            "{nothing}: it shares a cell, which admits {} of {} packets before the source gets an entry; the cell is {tracked}",
            cell.left, cell.capacity
        ),
    }
}

fn limit(limit: &LimitState) -> String {
    let rest = ending(limit.left, limit.capacity, limit.full_in_ms, limit.refused_for_ms);
    match limit.leased {
        None => {
            // A rate in Mbit with a bare number behind it would be read as bits.
            let unit = if limit.meter == Meter::Bytes.name() { " bytes" } else { "" };
            format!("{}: {} of {}{unit} left{rest}", limit.rate, limit.left, limit.capacity)
        }
        // What a host has by itself is little; how much it can be given depends on the others.
        Some(leased) => format!(
            "{}, on all hosts together: {} left on this one, {leased} of them leased{rest}",
            limit.rate, limit.left
        ),
    }
}

fn prefix(prefix: &PrefixState) -> String {
    let PrefixState { left, capacity, .. } = prefix;
    let rest = ending(*left, *capacity, prefix.full_in_ms, prefix.refused_for_ms);
    let share = match prefix.share_percent {
        Some(percent) => format!("; crowded: each source may have {percent} % of its own limits now"),
        None => String::new(),
    };
    format!(
        "{}, {} sources' worth: {left} of {capacity} packets left{rest}{share}",
        prefix.prefix, prefix.multiple
    )
}

fn service(service: &ServiceState, known: bool) -> impl Iterator<Item = String> {
    let own = service.per_source.iter().flat_map(|account| &account.limits);
    let own = own.map(|one| format!("this source: {}", limit(one)));
    let everybody = everybody(known);
    let totals = service.totals.iter().map(move |one| format!("{everybody}: {}", limit(one)));
    let cookies = service.syn_cookies.iter().map(|cookies| {
        let now =
            cookies.active_for_ms.map_or("not now".to_owned(), |ms| format!("for another {}", span(ms)));
        format!("SYNs above {} are answered with cookies: {now}", cookies.threshold)
    });
    own.chain(totals).chain(cookies)
}

/// Who shares a total. A part of each is out of reach for sources without an entry.
fn everybody(known: bool) -> &'static str {
    if known { "everybody" } else { "everybody, the part for sources without an entry" }
}

fn trial(service: &ServiceState) -> &'static str {
    if service.on_limit == "monitor" { ", on trial: its limits drop nothing" } else { "" }
}

fn ending(left: u64, capacity: u64, full_in_ms: u64, refused_for_ms: Option<u64>) -> String {
    let refused = refused_for_ms.map_or(String::new(), |ms| format!(", REFUSED for another {}", span(ms)));
    let full = match full_in_ms {
        0 if left < capacity => ", at rest".to_owned(),
        0 => String::new(),
        ms => format!(", full again in {}", span(ms)),
    };
    refused + &full
}

fn section(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        let _infallible = writeln!(text, "\n{title}");
    }
    for line in lines {
        let _infallible = writeln!(text, "  {line}");
    }
}

/// A span of time in at most two units.
fn span(ms: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    if ms < 1_000 {
        return format!("{ms} ms");
    }
    if ms < 60_000 {
        return format!("{}.{} s", ms / 1_000, ms / 100 % 10);
    }
    let at = UNITS.iter().position(|(unit, _)| ms >= *unit).unwrap_or(2);
    let ((large, large_name), (small, small_name)) = (UNITS[at], UNITS[at + 1]);
    match ms % large / small {
        0 => format!("{} {large_name}", ms / large),
        rest => format!("{} {large_name} {rest} {small_name}", ms / large),
    }
}

#[cfg(test)]
mod tests;
