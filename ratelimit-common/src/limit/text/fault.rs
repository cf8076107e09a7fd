//! Errors in a rate: which piece of the text is wrong, and a sentence about it.

use core::fmt;

use crate::abi::Meter;
use crate::limit::manner::MAX_MARGIN;
use crate::limit::quote::Quoted;
use crate::limit::rate::RateError;

/// Why a text is not a limit. `Display` gives the sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextError<'a> {
    pub(super) text: &'a str,
    pub(super) piece: &'a str,
    pub(super) counted: Counted,
    pub(super) fault: Fault,
}

/// What a rate can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Packets, bytes, SYNs and fragments.
    Traffic,
    /// Requests, and nothing else.
    Requests,
}

impl Counted {
    /// An example of a whole rate, for sentences.
    const fn example(self) -> &'static str {
        match self {
            Self::Traffic => "\"1000 packets/s burst 2000\"",
            Self::Requests => "\"100/hour burst 20\"",
        }
    }

    /// The word for a meter.
    const fn name(self, meter: Meter) -> &'static str {
        match self {
            Self::Traffic => meter.name(),
            Self::Requests => "requests",
        }
    }
}

/// What is wrong with a piece of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The text is only white space.
    Empty,
    /// A unit or a slash where a number belongs.
    NoNumber,
    /// A number in a form that the grammar does not have.
    BadNumber,
    /// A number that does not fit into 64 bits.
    TooLarge,
    /// An amount that is not whole in the unit of the meter.
    NotWhole {
        /// The meter that the amount is of.
        meter: Meter,
    },
    /// A scale without a unit, as in `10M/s`: packets, bytes or bits?
    NoUnit,
    /// An amount such as `10k bytes`.
    ScaledBytes,
    /// A unit that differs from two other units in the case of one letter.
    AmbiguousUnit {
        /// The unit, if bytes are meant.
        bytes: &'static str,
        /// The unit, if bits are meant.
        bits: &'static str,
    },
    /// A unit that is not known.
    UnknownUnit {
        /// The unit that was probably meant.
        hint: Option<&'static str>,
    },
    /// A unit of packets where requests are counted.
    NotRequests,
    /// An amount without a period.
    NoPeriod,
    /// A period that is not known.
    UnknownPeriod,
    /// A second rate in the same text.
    TwoUnits,
    /// Text that is left over, and is not a burst.
    Stray,
    /// `burst` and nothing behind it.
    NoBurst,
    /// A burst in another meter than the rate.
    BurstUnit {
        /// The meter of the rate.
        meter: Meter,
    },
    /// A burst with a period, such as `burst 10/s`.
    BurstPeriod,
    /// A window with a burst.
    BurstOfWindow,
    /// A margin that is no percentage, or is out of range.
    Margin,
    /// A well-formed rate that cannot be enforced.
    Rate(RateError),
}

impl<'a> TextError<'a> {
    /// The text that was parsed.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The wrong piece, a slice of [`Self::text`].
    pub fn piece(&self) -> &'a str {
        self.piece
    }

    /// Byte offset of the piece in the text.
    pub fn offset(&self) -> usize {
        self.piece.as_ptr().addr() - self.text.as_ptr().addr()
    }

    /// What is wrong with the piece.
    pub fn fault(&self) -> Fault {
        self.fault
    }
}

impl fmt::Display for TextError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (piece, example) = (Quoted(self.piece), self.counted.example());
        match self.fault {
            Fault::Empty => write!(f, "limit is empty; write it like {example}"),
            Fault::NoNumber => write!(f, "{piece} stands where a number belongs; write it like {example}"),
            Fault::BadNumber => write!(f, "{piece} is not a number; use one like 1000, 1_000 or 2.5"),
            Fault::TooLarge => write!(f, "{piece} is more than 64 bits can count; use a smaller number"),
            Fault::NotWhole { meter: Meter::Bytes } => {
                write!(f, "{piece} is not a whole number of bytes; use one that is, bits by the eight")
            }
            Fault::NotWhole { meter } => {
                let name = self.counted.name(meter);
                write!(f, "{piece} is not a whole number of {name}; use a longer period")
            }
            Fault::NoUnit => {
                write!(f, "{piece} has no unit; say packets, syns, or a unit such as \"MB\" or \"Mbit\"")
            }
            Fault::ScaledBytes => {
                write!(
                    f,
                    "{piece} goes with packets and syns; for bytes use \"kB\", \"MB\", \"KiB\" or \"MiB\""
                )
            }
            Fault::AmbiguousUnit { bytes, bits } => {
                write!(f, "unit {piece} is ambiguous; use \"{bytes}\" for bytes or \"{bits}\" for bits")
            }
            Fault::NotRequests => {
                write!(
                    f,
                    "unit {piece} is for packets; requests are just counted, so write \"requests\" or no unit"
                )
            }
            Fault::UnknownUnit { .. } if self.counted == Counted::Requests => {
                write!(f, "unit {piece} is not known; write \"requests\" or no unit")
            }
            Fault::UnknownUnit { hint: Some(hint) } => write!(f, "unit {piece} is not known; use \"{hint}\""),
            Fault::UnknownUnit { hint: None } => write!(
                f,
                "unit {piece} is not known; use packets, syns, fragments, bytes, kB, MB, GB, KiB, MiB, GiB, bit, kbit, Mbit or Gbit"
            ),
            Fault::NoPeriod => write!(f, "{piece} has no period; write it like {example}"),
            Fault::UnknownPeriod if self.counted == Counted::Requests => {
                write!(f, "period {piece} is not known; use s, min, hour, day or month")
            }
            Fault::UnknownPeriod => write!(f, "period {piece} is not known; use s, min, hour or day"),
            Fault::TwoUnits => {
                write!(f, "{piece} would be a second unit; one limit has one unit, so write two limits")
            }
            Fault::Stray => write!(f, "{piece} is not understood here; write the limit like {example}"),
            Fault::NoBurst => write!(f, "{piece} has no number; write it like {example}"),
            Fault::BurstUnit { meter: Meter::Bytes } => {
                write!(
                    f,
                    "burst unit {piece} does not fit a limit in bytes; use a unit such as \"bytes\" or \"KiB\""
                )
            }
            Fault::BurstUnit { meter } => {
                write!(
                    f,
                    "burst unit {piece} does not fit a limit in {0}; use \"{0}\" or no unit",
                    meter.name()
                )
            }
            Fault::BurstPeriod => {
                write!(f, "{piece} does not belong to a burst, which is an amount; remove it")
            }
            Fault::BurstOfWindow => {
                write!(
                    f,
                    "{piece} does not go with a window, which lets its whole amount through at once; remove it"
                )
            }
            Fault::Margin => {
                write!(f, "{piece} is no margin; write it like \"soft 10%\", from 1% to {MAX_MARGIN}%")
            }
            Fault::Rate(error) => write!(f, "limit {piece}: {error}"),
        }
    }
}

impl core::error::Error for TextError<'_> {}
