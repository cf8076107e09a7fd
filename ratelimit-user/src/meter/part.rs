//! Parts of a limit: what one host may give when it is alone, and what remains for all hosts together.

use super::Meter;

impl Meter {
    /// Returns `numerator / denominator` of the limit, in rate and capacity, rounded down. `None` if not even one unit remains.
    pub fn part(&self, numerator: u64, denominator: u64) -> Option<Self> {
        let units = (u128::from(self.capacity()) * u128::from(numerator) / u128::from(denominator)) as u64;
        (units > 0).then(|| self.scaled(numerator, denominator, units))
    }

    /// Returns an even part of the limit for each of `hosts` hosts, at least one unit.
    pub fn share(&self, hosts: u64) -> Self {
        self.scaled(1, hosts, (self.capacity() / hosts.max(1)).max(1))
    }

    /// Returns what remains of the limit when each of `hosts` hosts keeps a part for itself, all parts together being `permille` thousandths.
    pub fn without_parts(&self, permille: u64, hosts: u64) -> Self {
        match self.part(permille, 1_000 * hosts) {
            Some(part) => self.scaled(1_000 - permille, 1_000, self.capacity() - hosts * part.capacity()),
            None => self.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::{Fixed, Log, RequestBucket, Sliding, Soft};

    const SECOND: u64 = 1_000_000;

    #[test]
    fn the_parts_of_all_hosts_and_the_rest_are_the_whole() {
        for capacity in [1, 7, 100, 5_000] {
            for meter in [
                Meter::Bucket(RequestBucket::new(capacity, SECOND, capacity)),
                Meter::Soft(Soft::new(RequestBucket::new(capacity, SECOND, capacity), 50, 50)),
                Meter::Fixed(Fixed::new(capacity, SECOND)),
                Meter::Sliding(Sliding::new(capacity, 60 * SECOND)),
                Meter::Log(Log::new(capacity, SECOND)),
            ] {
                let part = meter.part(200, 1_000 * 3).map_or(0, |part| part.capacity());
                assert_eq!(meter.without_parts(200, 3).capacity() + 3 * part, meter.capacity(), "{meter:?}");
            }
        }
    }

    #[test]
    fn words_of_a_part_of_a_soft_bucket_mean_the_same_with_its_margin_and_without() {
        let own = RequestBucket::new(7, SECOND, 70);
        let [wide, plain] = [10, 0].map(|percent| {
            let part = Meter::Soft(Soft::new(own, percent, 10)).without_parts(200, 3);
            (part.layout(), part.bucket().map(RequestBucket::amount))
        });
        assert_eq!((wide.0 == plain.0, wide.1, plain.1), (true, Some(770), Some(700)));
    }

    #[test]
    fn a_bucket_is_as_much_slower_as_it_is_smaller() {
        let meter = Meter::Bucket(RequestBucket::new(300, SECOND, 30));
        assert_eq!(meter.share(3), Meter::Bucket(RequestBucket::new(300, 3 * SECOND, 10)));
        // A seventh does not come out even: the period is rounded up, and the rate down.
        assert_eq!(meter.without_parts(300, 1), Meter::Bucket(RequestBucket::new(300, 1_428_572, 21)));
        assert_eq!(meter.share(1_000).capacity(), 1, "never nothing");
        assert_eq!(meter.part(1, 1_000), None);
    }
}
