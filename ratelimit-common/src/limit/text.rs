//! Parses rates that an operator types in a policy file or after `limit set`.
//!
//! ```text
//! rate   = amount "/" period [ "burst" amount ] [ algorithm ] [ throttle ]
//!                                                        5000 packets/s burst 10000 leaky-bucket soft 10%
//! amount = number [ "k" | "M" ] [ unit ]                 15   10k packets   2.5 MB   40 Mbit
//! period = s | sec | second | min | minute | h | hour | d | day | month
//! algorithm = token-bucket | leaky-bucket | fixed-window | sliding-window | sliding-window-weighted | sliding-log
//! throttle  = hard | ( soft | elastic ) number "%"
//! ```
//!
//! - Numbers take `_` between digits, and decimals where the result is whole: `2.5 MB`, not `0.5 packets`.
//! - No unit means packets. `k` (10^3) and `M` (10^6) are for packets and SYNs only, and need the word for the unit
//!   in the rate: `10M/s` could mean bytes, bits or packets, so it is refused.
//! - Units have exactly one spelling if another spelling could mean something else: `mb` is an error that
//!   names `MB` and `Mbit`. kB, MB, GB and all bit units are decimal; KiB, MiB and GiB are binary.
//! - A burst is in the meter of its rate: `burst 2000`, `burst 256 KiB`. A burst of a byte limit without a unit
//!   is in bytes.
//! - Without a burst, the amount of one period is the burst, and for bytes at least [`MIN_DEFAULT_BYTE_BURST`].
//!
//! [`super::rate`] decides whether a well-formed rate can be enforced; [`parse_limit`] does both. Rates of requests have
//! the same grammar except for their unit: [`request`].

mod fault;
pub mod request;
mod unit;

#[cfg(test)]
mod tests;

pub use fault::{Counted, Fault, TextError};
use unit::Unit;

use super::{
    manner::{Algorithm, MAX_MARGIN, Manner, Throttle},
    rate::Rate,
    units::{ByteUnit, TypedUnits},
};
use crate::abi::{Limit, Meter};

/// The smallest default burst of a byte limit, in bytes: the largest frame that offloads can build.
pub const MIN_DEFAULT_BYTE_BURST: u64 = 65_536;

/// Parses a rate of packets.
pub fn parse_rate(text: &str) -> Result<Rate, TextError<'_>> {
    parse(text, Counted::Traffic, Manner::PLAIN)
}

/// Parses a rate of what `counted` names, in the given manner unless the text names another.
fn parse(text: &str, counted: Counted, manner: Manner) -> Result<Rate, TextError<'_>> {
    let mut cursor = Cursor { text, at: 0, counted };
    cursor.skip_space();
    let start = cursor.at;
    if cursor.rest().is_empty() {
        return Err(cursor.fault(text, Fault::Empty));
    }

    let amount = cursor.amount()?;
    let unit = match (amount.unit, amount.scale) {
        (Some(unit), _) => unit,
        (None, None) => Unit::PACKETS,
        // Requests have no other unit, so the word can be left out.
        (None, Some(_)) if counted == Counted::Requests => Unit::PACKETS,
        (None, Some(_)) => return Err(cursor.fault(amount.piece, Fault::NoUnit)),
    };
    let per_period = cursor.value(&amount, unit)?;

    cursor.skip_space();
    if !cursor.skip("/") {
        return Err(match cursor.rest().trim_end() {
            "" => cursor.fault(cursor.since(start).trim_end(), Fault::NoPeriod),
            rest => cursor.stray(rest),
        });
    }
    cursor.skip_space();
    let word = cursor.take_while(|c| !c.is_whitespace() && !",;+&".contains(c));
    let period = match unit::period(word) {
        Some(period) => period,
        None if word.is_empty() => return Err(cursor.fault(cursor.since(start).trim_end(), Fault::NoPeriod)),
        None => return Err(cursor.fault(word, Fault::UnknownPeriod)),
    };

    let burst_at = cursor.at;
    let burst = cursor.burst(unit.meter)?;
    let burst_piece = cursor.since(burst_at).trim();
    let manner = cursor.manner(manner)?;
    if manner.algorithm.is_window() && burst.is_some() {
        return Err(cursor.fault(burst_piece, Fault::BurstOfWindow));
    }
    let (burst, burst_unit) = burst.unwrap_or(match unit.meter {
        Meter::Bytes if !manner.algorithm.is_window() && per_period < MIN_DEFAULT_BYTE_BURST => {
            (MIN_DEFAULT_BYTE_BURST, ByteUnit::KIB)
        }
        _ => (per_period, unit.size),
    });
    let units = TypedUnits { amount: unit.size, burst: burst_unit };
    Ok(Rate { meter: unit.meter, amount: per_period, period, burst, manner, units })
}

/// Parses a rate of packets, and computes the parameters that enforce it.
pub fn parse_limit(text: &str) -> Result<(Rate, Limit), TextError<'_>> {
    let rate = parse_rate(text)?;
    match rate.limit() {
        Ok(limit) => Ok((rate, limit)),
        Err(error) => {
            let (counted, fault) = (Counted::Traffic, Fault::Rate(error));
            Err(TextError { text, piece: text.trim(), counted, fault })
        }
    }
}

/// A number with its scale and unit.
struct Amount<'a> {
    /// The whole text of the amount, for messages.
    piece: &'a str,
    number: Number,
    scale: Option<Scale<'a>>,
    unit: Option<Unit>,
    unit_word: &'a str,
}

/// `k` or `M` between a number and its unit.
#[derive(Clone, Copy)]
struct Scale<'a> {
    word: &'a str,
    factor: u64,
}

/// A decimal number without rounding: `mantissa / 10^places`.
struct Number {
    mantissa: u128,
    places: u32,
}

/// The position of the parser in the text. Every piece that it returns is a slice of the text.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
    counted: Counted,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn since(&self, start: usize) -> &'a str {
        &self.text[start..self.at]
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn skip_space(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn skip(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn fault(&self, piece: &'a str, fault: Fault) -> TextError<'a> {
        TextError { text: self.text, piece, counted: self.counted, fault }
    }

    /// The error for text that is left over: most often it is a second limit.
    fn stray(&self, rest: &'a str) -> TextError<'a> {
        let second = rest.trim_start_matches([',', ';', '+', '&', ' ']);
        let second = second.strip_prefix("and ").unwrap_or(second);
        if second.starts_with(|c: char| c.is_ascii_digit()) && second.contains('/') {
            return self.fault(second, Fault::TwoUnits);
        }
        self.fault(rest, Fault::Stray)
    }

    /// Reads a word, if one comes next.
    fn word(&mut self) -> &'a str {
        let before = self.at;
        self.skip_space();
        if !self.rest().starts_with(char::is_alphabetic) {
            self.at = before;
            return "";
        }
        self.take_while(|c| !c.is_whitespace() && c != '/')
    }

    fn amount(&mut self) -> Result<Amount<'a>, TextError<'a>> {
        let start = self.at;
        let number = self.number()?;
        let mut word = self.word();
        let scale = match word {
            "k" => Some(Scale { word, factor: 1_000 }),
            "M" => Some(Scale { word, factor: 1_000_000 }),
            _ => None,
        };
        if scale.is_some() {
            word = self.word();
        }
        let unit = match word {
            "" => None,
            _ => Some(self.unit(word).map_err(|fault| self.fault(word, fault))?),
        };
        match (scale, unit) {
            (Some(scale), Some(unit)) if unit.meter == Meter::Bytes => {
                Err(self.fault(scale.word, Fault::ScaledBytes))
            }
            _ => Ok(Amount { piece: self.since(start), number, scale, unit, unit_word: word }),
        }
    }

    fn unit(&self, word: &str) -> Result<Unit, Fault> {
        match self.counted {
            Counted::Traffic => unit::unit(word),
            Counted::Requests => request::unit(word),
        }
    }

    fn number(&mut self) -> Result<Number, TextError<'a>> {
        let start = self.at;
        let digits = self.take_while(|c| c.is_ascii_digit() || c == '_' || c == '.');
        let next = self.rest().chars().next();
        if digits.is_empty() && next.is_none_or(|c| c.is_alphabetic() || c == '/') {
            self.take_while(|c| !c.is_whitespace() && c != '/');
            return Err(self.fault(self.since(start), Fault::NoNumber));
        }
        if next.is_some_and(|c| !c.is_alphabetic() && !c.is_whitespace() && c != '/') {
            self.take_while(|c| !c.is_whitespace() && c != '/');
            return Err(self.fault(self.since(start), Fault::BadNumber));
        }
        Number::parse(digits).map_err(|fault| self.fault(digits, fault))
    }

    /// An amount in the unit of its meter.
    fn value(&self, amount: &Amount<'a>, unit: Unit) -> Result<u64, TextError<'a>> {
        let factor = amount.scale.map_or(1, |scale| scale.factor) * unit.size.numerator;
        amount
            .number
            .times(factor, unit.size.denominator, unit.meter)
            .map_err(|fault| self.fault(amount.piece, fault))
    }

    /// Reads a burst and its unit, if one comes next.
    fn burst(&mut self, meter: Meter) -> Result<Option<(u64, &'static ByteUnit)>, TextError<'a>> {
        self.skip_space();
        let start = self.at;
        let keyword = self.take_while(|c| !c.is_whitespace() && !c.is_ascii_digit());
        if keyword != "burst" {
            self.at = start;
            return Ok(None);
        }
        self.skip_space();
        if self.rest().is_empty() {
            return Err(self.fault(keyword, Fault::NoBurst));
        }
        let amount = self.burst_amount()?;
        let unit = match amount.unit {
            Some(unit) if unit.meter == meter => unit,
            Some(_) => return Err(self.fault(amount.unit_word, Fault::BurstUnit { meter })),
            None => Unit::one(meter),
        };
        self.skip_space();
        match self.rest().trim_end() {
            rest if rest.starts_with('/') => Err(self.fault(rest, Fault::BurstPeriod)),
            _ => self.value(&amount, unit).map(|burst| Some((burst, unit.size))),
        }
    }

    /// Reads the amount of a burst, behind which a word of the manner may come instead of a unit.
    fn burst_amount(&mut self) -> Result<Amount<'a>, TextError<'a>> {
        let start = self.at;
        let number = self.number()?;
        let behind = self.at;
        let word = self.word();
        self.at = if is_manner(word) { behind } else { start };
        if is_manner(word) {
            return Ok(Amount { piece: self.since(start), number, scale: None, unit: None, unit_word: "" });
        }
        self.amount()
    }

    /// Reads the rest of the text: algorithm and throttle, where they differ from the given manner.
    fn manner(&mut self, mut manner: Manner) -> Result<Manner, TextError<'a>> {
        let (mut algorithm, mut throttle) = (false, false);
        loop {
            self.skip_space();
            let rest = self.rest().trim_end();
            if rest.is_empty() {
                return Ok(manner);
            }
            let word = self.take_while(|c| !c.is_whitespace());
            let known = Algorithm::ALL.into_iter().find(|known| known.name() == word);
            match known {
                Some(known) if !algorithm && !throttle => (manner.algorithm, algorithm) = (known, true),
                None if is_manner(word) && !throttle => {
                    (manner.throttle, throttle) = (self.throttle(word)?, true);
                }
                _ => return Err(self.stray(rest)),
            }
        }
    }

    fn throttle(&mut self, word: &'a str) -> Result<Throttle, TextError<'a>> {
        if word == HARD {
            return Ok(Throttle::Hard);
        }
        self.skip_space();
        let number = self.take_while(|c| !c.is_whitespace());
        let percent = number.strip_suffix('%').and_then(|digits| digits.parse::<u32>().ok());
        let piece = if number.is_empty() { word } else { number };
        match percent.filter(|percent| (1..=MAX_MARGIN).contains(percent)) {
            Some(percent) if word == SOFT => Ok(Throttle::Soft(percent)),
            Some(percent) => Ok(Throttle::Elastic(percent)),
            None => Err(self.fault(piece, Fault::Margin)),
        }
    }
}

const HARD: &str = "hard";
const SOFT: &str = "soft";
const ELASTIC: &str = "elastic";

/// Whether a word is one of the manner, and so not a unit.
fn is_manner(word: &str) -> bool {
    [HARD, SOFT, ELASTIC].contains(&word) || Algorithm::ALL.iter().any(|algorithm| algorithm.name() == word)
}

impl Number {
    /// Parses digits with `_` between them, and at most one point between digits.
    fn parse(text: &str) -> Result<Self, Fault> {
        let digit_at = |i: usize| text.as_bytes().get(i).is_some_and(u8::is_ascii_digit);
        let mut number = Self { mantissa: 0, places: 0 };
        let mut in_fraction = false;
        for (i, c) in text.char_indices() {
            let between_digits = i > 0 && digit_at(i - 1) && digit_at(i + 1);
            match c.to_digit(10) {
                Some(digit) => {
                    number.mantissa = number
                        .mantissa
                        .checked_mul(10)
                        .and_then(|m| m.checked_add(u128::from(digit)))
                        .ok_or(Fault::TooLarge)?;
                    number.places += u32::from(in_fraction);
                }
                None if c == '_' && between_digits => {}
                None if c == '.' && between_digits && !in_fraction => in_fraction = true,
                None => return Err(Fault::BadNumber),
            }
        }
        Ok(number)
    }

    /// `self x numerator / denominator`, or an error if that is not a whole number.
    fn times(&self, numerator: u64, denominator: u64, meter: Meter) -> Result<u64, Fault> {
        // A mantissa below 2^128 has at most 38 digits, so the power fits too.
        let divisor = 10_u128.checked_pow(self.places).and_then(|p| p.checked_mul(u128::from(denominator)));
        let product = self.mantissa.checked_mul(u128::from(numerator));
        let (Some(divisor), Some(product)) = (divisor, product) else {
            return Err(Fault::TooLarge);
        };
        if product % divisor != 0 {
            return Err(Fault::NotWhole { meter });
        }
        u64::try_from(product / divisor).map_err(|_| Fault::TooLarge)
    }
}
