//! A replay in words.

use super::{CaptureRow, ReplayAnswer};
use crate::{
    cli::output::table,
    replay::{Differences, OneSided, ReplayReport},
};

pub(super) fn text(answer: &ReplayAnswer) -> String {
    let ReplayAnswer { capture, policy, against, differences, .. } = answer;
    let mut text = about(capture);
    text.push_str(&of_policy(policy));
    if let Some(against) = against {
        text.push_str(&format!("\nagainst {}\n", against.policy));
        text.push_str(&of_policy(against));
    }
    if let Some(differences) = differences {
        text.push_str(&compared(differences));
    }
    text
}

fn about(capture: &CaptureRow) -> String {
    let CaptureRow { file, format, link_types, packets, bytes, seconds, .. } = capture;
    let mut text = format!(
        "{file}: {format}, {}, {packets} packets, {bytes} bytes in {seconds} s{}\n",
        if link_types.is_empty() { "no packets".to_owned() } else { link_types.join(" and ") },
        capture.first.as_ref().map_or(String::new(), |first| format!(" from {first}"))
    );
    for (count, words) in [
        (capture.outgoing_packets, "packets were sent by the host and left out"),
        (capture.headless_packets, "packets have no header of a link and were left out"),
        (capture.cut_packets, "packets were captured in part; their length is the one they had"),
        (
            capture.out_of_order_packets,
            "packets have a time before that of the one before them, and count as then",
        ),
    ] {
        if count > 0 {
            text.push_str(&format!("  {count} {words}\n"));
        }
    }
    text
}

fn of_policy(report: &ReplayReport) -> String {
    let totals = &report.totals;
    let row = |name: &str, packets: u64, bytes: String| vec![name.to_owned(), packets.to_string(), bytes];
    let mut rows = vec![
        row("offered", totals.offered_packets, totals.offered_bytes.to_string()),
        row("passed", totals.passed_packets, totals.passed_bytes.to_string()),
        row("dropped", totals.dropped_packets, totals.dropped_bytes.to_string()),
    ];
    if totals.rejected_packets > 0 {
        rows.push(row("  of them rejected", totals.rejected_packets, String::new()));
    }
    if totals.refused_and_passed_packets > 0 {
        rows.push(row("refused, and passed", totals.refused_and_passed_packets, String::new()));
    }
    let mut text = format!("\npolicy {} ({})\n", report.policy, report.mode);
    text.push_str(&table(&["", "packets", "bytes"], &rows));
    if let (Some(first), Some(last)) = (&report.first_refused, &report.last_refused) {
        text.push_str(&format!(
            "refused from {first} to {last}, {} of {} sources\n",
            report.sources_refused, report.sources_seen
        ));
    }
    let refusals: Vec<Vec<String>> = report
        .refusals
        .iter()
        .map(|row| {
            let limit = row.limit.clone().unwrap_or_else(|| "-".to_owned());
            let rates = if row.rates.is_empty() { "-".to_owned() } else { row.rates.join(", ") };
            vec![
                format!("{} ({})", row.reason, row.fate.replace('_', " ")),
                row.service.clone().unwrap_or_else(|| "-".to_owned()),
                limit,
                rates,
                row.packets.to_string(),
                row.sources.to_string(),
                row.examples.first().cloned().unwrap_or_else(|| "-".to_owned()),
            ]
        })
        .collect();
    if !refusals.is_empty() {
        text.push('\n');
        let header = ["reason", "service", "limit", "rate", "packets", "sources", "most from"];
        text.push_str(&table(&header, &refusals));
    }
    let sources: Vec<Vec<String>> = report
        .sources
        .iter()
        .take(10)
        .map(|row| {
            vec![
                row.source.clone(),
                row.offered_packets.to_string(),
                row.passed_packets.to_string(),
                row.refused_packets.to_string(),
                row.service.clone().unwrap_or_else(|| "-".to_owned()),
                row.limit.clone().or(row.reason.map(str::to_owned)).unwrap_or_else(|| "-".to_owned()),
            ]
        })
        .collect();
    if !sources.is_empty() {
        text.push('\n');
        text.push_str(&table(&["source", "offered", "passed", "refused", "service", "why"], &sources));
    }
    for note in &report.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

fn compared(differences: &Differences) -> String {
    let mut text = format!(
        "\nrefused by the policy only: {} packets of {} sources\nrefused by the other only:  {} packets of {} sources\nrefused by both:            {} packets\n",
        differences.refused_by_policy_only_packets,
        differences.refused_by_policy_only_sources,
        differences.refused_by_against_only_packets,
        differences.refused_by_against_only_sources,
        differences.refused_by_both_packets,
    );
    for (rows, title) in [
        (&differences.refused_by_policy_only, "sources that the policy alone refuses"),
        (&differences.refused_by_against_only, "sources that the other alone refuses"),
    ] {
        if !rows.is_empty() {
            let cells = |row: &OneSided| {
                vec![row.source.clone(), row.offered_packets.to_string(), row.refused_packets.to_string()]
            };
            let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
            text.push_str(&format!("\n{title}\n{}", table(&["source", "offered", "refused"], &rows)));
        }
    }
    if differences.left_out_packets > 0 {
        let left_out = differences.left_out_packets;
        text.push_str(&format!(
            "note: {left_out} packets are of sources for which there was no room to compare\n"
        ));
    }
    text
}
