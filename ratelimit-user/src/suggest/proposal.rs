//! Proposes a limit for observed rates.

use super::distribution::Distribution;

/// A source with this many times the rate of the next lower one is taken for a flood.
const GAP: u64 = 10;
/// A limit is this many times the busiest second of the other sources, and its burst this many times the limit.
const ROOM: u64 = 2;

/// A proposed limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The unit: `packets` or `syns`.
    pub unit: &'static str,
    /// Units per second.
    pub rate: u64,
    /// The burst in units.
    pub burst: u64,
    /// Why this limit is proposed.
    pub reason: String,
}

impl Proposal {
    /// The limit for these rates; at least `least`, which a normal source may need.
    pub fn of(rates: &Distribution, unit: &'static str, least: u64) -> Self {
        let (busiest, beyond) = rates.before_gap(GAP);
        let wanted = round_up(busiest.saturating_mul(ROOM));
        let rate = wanted.max(least);
        let whose = match beyond {
            0 => "of any source".to_owned(),
            1 => format!("of any source but 1 that has {GAP} times as much and more"),
            beyond => format!("of any source but {beyond} that have {GAP} times as much and more"),
        };
        let floor = if wanted < least { format!(", and at least {least}") } else { String::new() };
        let reason = format!("{ROOM} times the busiest second ({busiest} {unit}) {whose}, rounded up{floor}");
        Self { unit, rate, burst: rate.saturating_mul(ROOM), reason }
    }

    /// The limit as in a policy.
    pub fn limit(&self) -> String {
        let Self { unit, rate, burst, .. } = self;
        format!("{rate} {unit}/s burst {burst}")
    }
}

/// The next round number that is not below `value`.
fn round_up(value: u64) -> u64 {
    let power = 10_u64.saturating_pow(value.max(1).ilog10());
    let steps = [10, 15, 20, 30, 40, 50, 60, 80, 100];
    steps
        .into_iter()
        .map(|tenths| power.saturating_mul(tenths).div_ceil(10))
        .find(|step| *step >= value)
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_leaves_room_above_the_busiest_source_and_none_for_a_flood() {
        let mut rates = Distribution::default();
        (1..=70).for_each(|rate| rates.add(rate));
        assert_eq!(Proposal::of(&rates, "packets", 10).limit(), "150 packets/s burst 300");
        rates.add(5_000);
        let proposal = Proposal::of(&rates, "packets", 10);
        assert_eq!(proposal.limit(), "150 packets/s burst 300");
        assert!(proposal.reason.contains("but 1 that has 10 times as much"), "{}", proposal.reason);
        let least = Proposal::of(&rates, "packets", 500);
        assert!(least.limit().starts_with("500 packets/s") && least.reason.ends_with(", and at least 500"));
    }

    #[test]
    fn numbers_are_rounded_up_to_one_digit_or_fifteen() {
        for (value, rounded) in
            [(0, 1), (1, 1), (7, 8), (11, 15), (16, 20), (95, 100), (140, 150), (2_001, 3_000)]
        {
            assert_eq!(round_up(value), rounded, "{value}");
        }
    }
}
