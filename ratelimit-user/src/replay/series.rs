//! Offered and passed packets over time, in a bounded number of bins.

/// The most bins. A longer capture has bins of two seconds, of four, and so on.
const MAX_BINS: usize = 3600;

/// The packets of one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Packets that arrived.
    pub offered_packets: u64,
    /// Bytes of the packets that arrived.
    pub offered_bytes: u64,
    /// Packets that were handed on.
    pub passed_packets: u64,
    /// Bytes of the packets that were handed on.
    pub passed_bytes: u64,
    /// Packets that were refused, whatever their fate.
    pub refused_packets: u64,
}

impl Bin {
    fn add(&mut self, other: &Self) {
        self.offered_packets += other.offered_packets;
        self.offered_bytes += other.offered_bytes;
        self.passed_packets += other.passed_packets;
        self.passed_bytes += other.passed_bytes;
        self.refused_packets += other.refused_packets;
    }
}

/// Bins from the first packet on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    seconds: u64,
    bins: Vec<Bin>,
}

impl Default for Series {
    fn default() -> Self {
        Self { seconds: 1, bins: Vec::new() }
    }
}

impl Series {
    /// Adds packets that arrived `second` seconds after the first one.
    pub fn add(&mut self, second: u64, arrived: &Bin) {
        while second / self.seconds >= MAX_BINS as u64 {
            self.widen();
        }
        let at = (second / self.seconds) as usize;
        if at >= self.bins.len() {
            self.bins.resize(at + 1, Bin::default());
        }
        self.bins[at].add(arrived);
    }

    fn widen(&mut self) {
        self.seconds *= 2;
        let pairs = self.bins.chunks(2).map(|pair| {
            let mut sum = pair[0];
            pair[1..].iter().for_each(|one| sum.add(one));
            sum
        });
        self.bins = pairs.collect();
    }

    /// Seconds that a bin lasts.
    pub fn seconds_per_bin(&self) -> u64 {
        self.seconds
    }

    /// All bins, from the first packet to the last.
    pub fn bins(&self) -> &[Bin] {
        &self.bins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Bin =
        Bin { offered_packets: 1, offered_bytes: 60, passed_packets: 0, passed_bytes: 0, refused_packets: 1 };

    #[test]
    fn a_long_capture_has_wider_bins_and_loses_no_packet() {
        let mut series = Series::default();
        for second in [0, 1, 3599, 3600, 40_000, 31_536_000] {
            series.add(second, &ONE);
        }
        assert!(series.bins().len() <= MAX_BINS);
        assert_eq!(series.seconds_per_bin(), 16_384);
        let packets = |at: usize| series.bins()[at].offered_packets;
        assert_eq!((packets(0), packets(2), packets(31_536_000 / 16_384)), (4, 1, 1));
    }

    #[test]
    fn seconds_without_a_packet_are_bins_too() {
        let mut series = Series::default();
        series.add(0, &ONE);
        series.add(3, &ONE);
        assert_eq!(series.bins().iter().map(|bin| bin.refused_packets).collect::<Vec<_>>(), [1, 0, 0, 1]);
    }
}
