//! Packets of known clients that came while a total was spent.

use serde::{Deserialize, Serialize};

/// Packets of known clients that came while a total was spent, at all services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownPackets {
    /// Packets that had a part of the total before others.
    #[serde(rename = "known_admitted_packets")]
    pub admitted: u64,
    /// Packets that the total refused.
    #[serde(rename = "known_refused_packets")]
    pub refused: u64,
}

impl KnownPackets {
    /// Returns the packets since an earlier look. Counters that are smaller than before were made anew, and count from zero.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let grown = |now: u64, then: u64| now.checked_sub(then).unwrap_or(now);
        Self {
            admitted: grown(self.admitted, earlier.admitted),
            refused: grown(self.refused, earlier.refused),
        }
    }

    /// Adds other packets.
    pub fn add(&mut self, other: Self) {
        self.admitted = self.admitted.saturating_add(other.admitted);
        self.refused = self.refused.saturating_add(other.refused);
    }

    /// Returns how many packets came in a second, on average over a span.
    pub fn per_second(self, span_ms: u64) -> KnownFlow {
        let over = |count: u64| count as f64 * 1e3 / span_ms.max(1) as f64;
        KnownFlow { admitted: over(self.admitted), refused: over(self.refused) }
    }

    /// Returns one sentence about the packets, without a full stop; `None` if there were none.
    pub fn words(self) -> Option<String> {
        let Self { admitted, refused } = self;
        let percent = refused as f64 * 100.0 / (admitted as f64 + refused as f64);
        let words = || {
            format!("known clients: {admitted} packets came first, {refused} were refused ({percent:.1} %)")
        };
        (self != Self::default()).then(words)
    }
}

/// Packets of known clients per second that came while a total was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownFlow {
    /// Packets that had a part of the total before others.
    #[serde(rename = "known_admitted_packets_per_second")]
    pub admitted: f64,
    /// Packets that the total refused.
    #[serde(rename = "known_refused_packets_per_second")]
    pub refused: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_went_backwards_count_from_zero() {
        let packets = |admitted, refused| KnownPackets { admitted, refused };
        assert_eq!(packets(50, 9).since(packets(20, 9)), packets(30, 0));
        assert_eq!(packets(5, 9).since(packets(20, 4)), packets(5, 5));
    }

    #[test]
    fn a_sentence_has_both_numbers_and_the_part_refused() {
        let words = |admitted, refused| KnownPackets { admitted, refused }.words();
        assert_eq!(words(0, 0), None);
        for (admitted, refused, end) in
            [(41_230, 120, "120 were refused (0.3 %)"), (0, 7, "7 were refused (100.0 %)")]
        {
            let sentence = format!("known clients: {admitted} packets came first, {end}");
            assert_eq!(words(admitted, refused), Some(sentence));
        }
    }
}
