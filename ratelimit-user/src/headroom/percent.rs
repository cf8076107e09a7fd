//! A percentage with two decimals, as the kernel shows it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A percentage, kept in hundredths of a percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub struct Percent(u32);

/// Hundredths of a percent in 100 %.
const WHOLE: u64 = 10_000;

impl Percent {
    /// Makes a percentage from whole percent.
    pub const fn new(percent: u32) -> Self {
        Self(percent * 100)
    }

    /// Returns the percentage that `part` is of `whole`, at most 100 %; `None` if the whole is 0.
    pub fn of(part: u64, whole: u64) -> Option<Self> {
        let share = (u128::from(part) * u128::from(WHOLE)).checked_div(whole.into())?;
        Some(Self(share.min(WHOLE.into()) as u32))
    }

    /// Returns the hundredths of a percent, which can be compared with a mark.
    pub(super) const fn hundredths(self) -> u64 {
        self.0 as u64
    }
}

impl FromStr for Percent {
    type Err = ();

    /// Parses a percentage such as `54.51`, with at most two decimals.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > 2 {
            return Err(());
        }
        let whole: u32 = whole.parse().map_err(|_| ())?;
        let decimals: u32 = format!("{decimals:0<2}").parse().map_err(|_| ())?;
        if whole > 100 {
            return Err(());
        }
        Ok(Self(whole * 100 + decimals))
    }
}

impl From<Percent> for f64 {
    fn from(percent: Percent) -> Self {
        Self::from(percent.0) / 100.0
    }
}

impl From<f64> for Percent {
    fn from(percent: f64) -> Self {
        // The cast saturates, and turns NaN into 0.
        Self((percent * 100.0).round() as u32)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02} %", self.0 / 100, self.0 % 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_the_kernel_writes_it_and_nothing_else_is() {
        for (text, shown) in [
            ("0.00", "0.00 %"),
            ("54.51", "54.51 %"),
            ("7.05", "7.05 %"),
            ("100.00", "100.00 %"),
            ("3", "3.00 %"),
            ("3.5", "3.50 %"),
        ] {
            assert_eq!(text.parse::<Percent>().unwrap().to_string(), shown);
        }
        for text in ["", ".", "1.", ".5", "-1.00", "1.234", "1e2", "101.00", "99999999999.00", "+1.00", "nan"]
        {
            assert!(text.parse::<Percent>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_part_is_a_share_of_its_whole_and_of_nothing_there_is_none() {
        assert_eq!(Percent::of(1, 3).unwrap().to_string(), "33.33 %");
        assert_eq!(
            Percent::of(5, 3),
            Some(Percent::new(100)),
            "counters of two CPUs are not read at one moment"
        );
        assert_eq!(Percent::of(u64::MAX, u64::MAX), Some(Percent::new(100)));
        assert_eq!(Percent::of(0, 0), None);
    }

    #[test]
    fn a_number_in_json_comes_back_as_it_was() {
        for hundredths in 0..=10_000 {
            let percent = Percent(hundredths);
            let json = serde_json::to_string(&percent).unwrap();
            assert_eq!(serde_json::from_str::<Percent>(&json).unwrap(), percent, "{json}");
        }
    }
}
