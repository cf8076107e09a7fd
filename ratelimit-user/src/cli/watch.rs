//! `ratelimit watch`: refused packets while they are refused.

mod pcap;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;

use super::{
    DaemonArgs, Format,
    output::{Output, complain, json_line, print_if_read},
    span::parse_span,
};
use crate::{
    control::{
        client::{ask, listen, unexpected},
        protocol::{Order, Reply},
    },
    drops::{Dropped, Filter},
    failure::Failure,
    stats::view::StatsView,
    tui::rows::short,
};
use pcap::PcapFile;

/// How long nothing is shown before `watch` says why.
const SILENCE: Duration = Duration::from_secs(2);

/// Show refused packets while they are refused, until interrupted.
///
/// The packets are samples: at most ten a second of each source on each CPU. `ratelimit stats` counts every packet.
///
/// With --pcap the first 128 bytes of each packet go to a file that Wireshark opens, with the reason as its comment. That is another sample: every refused packet while there are
/// few packets, one in n during a flood, as the comment then says.
///
/// Example: ratelimit watch --source 203.0.113.0/24 --for 10s
#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// Only sources that have addresses in this prefix
    #[arg(long, value_name = "CIDR")]
    source: Option<String>,
    /// Only this reason, as stats has it: limit_packets, blocked, ...
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// End after this time: 10s, 5m
    #[arg(long = "for", value_name = "TIME")]
    span: Option<String>,
    /// End after so many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Write packets to this file too, as pcapng; - is standard output, and nothing else is printed
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    format: Format,
}

impl WatchArgs {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let span = parse_span(self.span.as_deref())?;
        Filter::parse(self.source.as_deref(), self.reason.as_deref())?;
        let frames = self.pcap.is_some();
        self.pcap.as_deref().map_or(Ok(()), pcap::refuse_terminal)?;
        let is_filtered = self.source.is_some() || self.reason.is_some();
        let request = Order::Watch { source: self.source, reason: self.reason, frames };
        let mut answers = listen(&self.daemon.state, request)?;
        let mut file = self.pcap.as_deref().map(PcapFile::create).transpose()?;
        let is_quiet = self.pcap.as_deref().is_some_and(pcap::is_stdout);
        // Its place among those who watch is free as soon as nobody reads, also while nothing is refused.
        crate::hangup::end_with_reader();
        // A time so long that the clock does not reach it is no deadline.
        let deadline = span.and_then(|span| Instant::now().checked_add(span));
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut silent_until =
            Instant::now().checked_add(SILENCE).filter(|soon| deadline.is_none_or(|end| *soon < end));
        while left > 0 {
            let Some(reply) = answers.next(silent_until.or(deadline))? else {
                if silent_until.take().is_none() {
                    return Ok(());
                }
                if let Ok(Reply::View(view)) = ask(&self.daemon.state, Order::Top) {
                    complain(&silence(&view, is_filtered));
                }
                continue;
            };
            silent_until = None;
            if let (Reply::Frame(frame), Some(file)) = (&reply, &mut file)
                && !file.add(frame)?
            {
                return Ok(());
            }
            let line = match (&reply, self.format.output) {
                (Reply::Frame(_), _) if is_quiet => {
                    left -= 1;
                    continue;
                }
                (Reply::Frame(frame), output) => {
                    left -= 1;
                    if output == Output::Json { json_line(&frame.packet)? } else { text(&frame.packet) }
                }
                (Reply::Lost(lost), _) if is_quiet => {
                    complain(&format!("{lost} sampled packets were not read in time"));
                    continue;
                }
                (Reply::Dropped(packet), output) => {
                    left -= 1;
                    if output == Output::Json { json_line(packet)? } else { text(packet) }
                }
                (Reply::Lost(lost), Output::Json) => json_line(&serde_json::json!({ "lost": lost }))?,
                (Reply::Lost(lost), Output::Text) => {
                    complain(&format!(
                        "{lost} looked-at packets were not read in time, refused ones among them"
                    ));
                    continue;
                }
                (Reply::Notice(notice), _) => {
                    complain(notice);
                    continue;
                }
                (other, _) => return Err(unexpected(other)),
            };
            if !print_if_read(&line)? {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Returns a sentence for an operator who sees no packets.
fn silence(view: &StatsView, is_filtered: bool) -> String {
    let [passed, dropped] = [&view.passed, &view.dropped].map(|flow| short(flow.packets_per_second));
    match (view.dropped.packets_per_second > 0.0, is_filtered) {
        (false, _) => {
            format!("nothing is being refused: {passed} packets/s pass; ratelimit top shows who sends them")
        }
        (true, true) => format!(
            "no refused packet matches so far: {dropped} packets/s are refused and {passed} pass; ratelimit top shows who sends them"
        ),
        (true, false) => format!(
            "{dropped} packets/s are refused, none of them by a limit or a list that is watched; ratelimit stats has the reasons"
        ),
    }
}

fn text(packet: &Dropped) -> String {
    let Dropped { at, source, reason, fate, service, bytes, .. } = packet;
    let service = service.as_ref().map_or(String::new(), |name| format!(", service {name}"));
    format!(
        "{at}  {source:<15}  {}: {reason}{service}{}, {bytes} bytes\n",
        fate.replace('_', " "),
        ends(packet)
    )
}

/// Returns the protocol and where the packet goes, as far as that is known: `, udp port 4711 to 198.51.100.1 port 53`.
fn ends(packet: &Dropped) -> String {
    let port = |port: Option<u16>| port.map_or_else(String::new, |port| format!(" port {port}"));
    match (&packet.protocol, &packet.destination) {
        (Some(protocol), Some(destination)) => {
            format!(", {protocol}{} to {destination}{}", port(packet.source_port), port(packet.port))
        }
        _ => packet.port.map_or_else(String::new, |port| format!(", port {port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::flow::Flow;

    fn packet() -> Dropped {
        Dropped {
            at: "2026-11-15T09:48:51.123Z".to_owned(),
            source: "10.99.0.66".to_owned(),
            reason: "limit_packets".to_owned(),
            fate: "would_drop".to_owned(),
            service: Some("dns".to_owned()),
            protocol: Some("udp".to_owned()),
            source_port: Some(4711),
            destination: Some("198.51.100.1".to_owned()),
            port: Some(53),
            bytes: 60,
        }
    }

    #[test]
    fn who_sees_no_packet_is_told_what_passes() {
        let flow = |packets_per_second| Flow { packets_per_second, ..Flow::default() };
        let view =
            |dropped| StatsView { passed: flow(1_230.0), dropped: flow(dropped), ..StatsView::default() };
        assert_eq!(
            silence(&view(0.0), true),
            "nothing is being refused: 1.23k packets/s pass; ratelimit top shows who sends them"
        );
        assert!(
            silence(&view(50.0), true)
                .starts_with("no refused packet matches so far: 50 packets/s are refused and 1.23k")
        );
        assert!(silence(&view(50.0), false).starts_with("50 packets/s are refused, none of them by a limit"));
    }

    #[test]
    fn a_packet_is_one_line() {
        assert_eq!(
            text(&packet()),
            "2026-11-15T09:48:51.123Z  10.99.0.66       would drop: limit_packets, service dns, udp port 4711 to 198.51.100.1 port 53, 60 bytes\n"
        );
        let icmp = Dropped { protocol: Some("icmp".to_owned()), source_port: None, port: None, ..packet() };
        assert!(text(&icmp).ends_with(", service dns, icmp to 198.51.100.1, 60 bytes\n"), "{}", text(&icmp));
        let bare =
            Dropped { service: None, port: None, protocol: None, fate: "dropped".to_owned(), ..packet() };
        assert!(text(&bare).ends_with("  dropped: limit_packets, 60 bytes\n"), "{}", text(&bare));
    }
}
