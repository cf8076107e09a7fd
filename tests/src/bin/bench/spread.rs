//! Several measurements of one thing, as their median and how far apart they are.

use serde::Serialize;

/// Median, quartiles, smallest and largest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) lower_quartile: f64,
    pub(crate) upper_quartile: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// The spread of measurements in any order; `None` if there are none.
    pub(crate) fn of(measured: &[f64]) -> Option<Self> {
        let mut sorted = measured.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        // Between two measurements, as far from each as the share says.
        let at = |share: f64| {
            let place = share * (sorted.len() - 1) as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Some(Self { median: at(0.5), lower_quartile: at(0.25), upper_quartile: at(0.75), min, max })
    }

    /// One value that does not vary.
    pub(crate) fn exact(value: f64) -> Self {
        Self { median: value, lower_quartile: value, upper_quartile: value, min: value, max: value }
    }

    /// The spread of the ratios, round by round: both were measured within seconds of each other, so whatever else the machine did
    /// at that time is in both.
    pub(crate) fn of_ratios(measured: &[f64], against: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = measured.iter().zip(against).map(|(one, other)| one / other).collect();
        Self::of(&ratios)
    }

    /// The median and the quartiles as `0.83 (0.80..0.85)`, everything divided by `unit`.
    pub(crate) fn shown(&self, unit: f64, digits: usize) -> String {
        let [median, lower, upper] =
            [self.median, self.lower_quartile, self.upper_quartile].map(|value| value / unit);
        format!("{median:.digits$} ({lower:.digits$}..{upper:.digits$})")
    }

    /// The spread as [`Self::shown`] has it, and a dash for what was not measured.
    pub(crate) fn shown_or_dash(spread: Option<Self>, unit: f64, digits: usize) -> String {
        spread.map_or("-".into(), |spread| spread.shown(unit, digits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_depend_on_the_order_or_on_one_bad_round() {
        let spread = Spread::of(&[9.0, 0.1, 10.0, 11.0, 8.0]).unwrap();
        assert_eq!(
            spread,
            Spread { median: 9.0, lower_quartile: 8.0, upper_quartile: 10.0, min: 0.1, max: 11.0 }
        );
        assert_eq!(spread.shown(10.0, 1), "0.9 (0.8..1.0)");
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // A machine that was twice as slow in the second round.
        let spread = Spread::of_ratios(&[8.0, 4.0, 8.0], &[10.0, 5.0, 10.0]).unwrap();
        assert_eq!(spread, Spread::exact(0.8));
    }
}
