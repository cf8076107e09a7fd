//! Metrics of the sources that send most, only if the policy asks for them, because each source is a series.

use prometheus::{IntGaugeVec, Opts, Registry};

use crate::stats::view::StatsView;

/// Registers the largest sources of a view, at most `most`.
pub(super) fn register(registry: &Registry, view: &StatsView, most: usize) -> Result<(), prometheus::Error> {
    let labels = ["source", "service"];
    let help = "Packets per second of the largest sources, estimated; with [listen] metrics_top.";
    let packets = IntGaugeVec::new(Opts::new("ratelimit_top_packets_per_second", help), &labels)?;
    let help = "Dropped packets per second of the largest sources, estimated; with [listen] metrics_top.";
    let dropped = IntGaugeVec::new(Opts::new("ratelimit_top_dropped_packets_per_second", help), &labels)?;
    let mut largest: Vec<_> = view.sources.iter().collect();
    largest.sort_by_key(|talker| std::cmp::Reverse(talker.packets()));
    for talker in largest.into_iter().take(most) {
        let values = [talker.name(), talker.service.as_deref().unwrap_or_default()];
        packets.with_label_values(&values).set(talker.packets_per_second as i64);
        let by_second = talker.dropped_packets.saturating_mul(1_000) / view.span_ms.max(1);
        dropped.with_label_values(&values).set(by_second as i64);
    }
    registry.register(Box::new(packets))?;
    registry.register(Box::new(dropped))
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;
    use crate::stats::talkers::Talker;

    fn talker(host: u64) -> Talker {
        Talker {
            source: Some(format!("10.0.0.{host}")),
            prefix: None,
            user: None,
            passed_packets: host,
            dropped_packets: 2 * host,
            replied_packets: 0,
            bytes: 0,
            packets_per_second: 3.0 * host as f64,
            bytes_per_second: 0.0,
            error_packets: 0,
            service: (host == 9).then(|| "dns".to_owned()),
            reason: None,
            port: None,
            known: false,
            limits: Vec::new(),
        }
    }

    #[test]
    fn there_are_as_many_series_as_were_asked_for_and_they_are_the_largest() {
        let view =
            StatsView { span_ms: 1_000, sources: (1..=9).map(talker).collect(), ..StatsView::default() };
        let registry = Registry::new();
        register(&registry, &view, 2).unwrap();
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            series,
            [
                "ratelimit_top_dropped_packets_per_second{service=\"\",source=\"10.0.0.8\"} 16",
                "ratelimit_top_dropped_packets_per_second{service=\"dns\",source=\"10.0.0.9\"} 18",
                "ratelimit_top_packets_per_second{service=\"\",source=\"10.0.0.8\"} 24",
                "ratelimit_top_packets_per_second{service=\"dns\",source=\"10.0.0.9\"} 27",
            ]
        );
    }
}
