//! The units that limits in bytes are typed in, so that they are read back as they were typed: 50 Mbit/s, and not 6250000 bytes/s.

use core::{
    fmt,
    hash::{Hash, Hasher},
};

/// A unit of bytes or bits: `numerator / denominator` bytes.
#[derive(Clone, Copy, Debug)]
pub struct ByteUnit {
    /// The word for the unit, as users type it.
    pub(super) name: &'static str,
    pub(super) numerator: u64,
    pub(super) denominator: u64,
}

impl ByteUnit {
    /// The unit of one byte.
    pub const BYTES: &Self = &Self { name: "bytes", numerator: 1, denominator: 1 };
    pub(super) const KB: &Self = &Self { name: "kB", numerator: 1_000, denominator: 1 };
    pub(super) const KIB: &Self = &Self { name: "KiB", numerator: 1 << 10, denominator: 1 };
}

/// The units of a rate in bytes and of its burst. They are for display alone: rates that differ in nothing else are equal.
#[derive(Clone, Copy, Debug)]
pub struct TypedUnits {
    /// The unit of the amount.
    pub amount: &'static ByteUnit,
    /// The unit of the burst.
    pub burst: &'static ByteUnit,
}

impl TypedUnits {
    /// Amount and burst in bytes.
    pub const BYTES: Self = Self { amount: ByteUnit::BYTES, burst: ByteUnit::BYTES };
}

impl PartialEq for TypedUnits {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for TypedUnits {}

impl Hash for TypedUnits {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A number of bytes in a unit. A number that takes more than three decimals is written in bytes.
pub(super) struct BytesIn(pub(super) u64, pub(super) &'static ByteUnit);

impl fmt::Display for BytesIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes, unit) = *self;
        let (product, divisor) =
            (u128::from(bytes) * u128::from(unit.denominator) * 1_000, u128::from(unit.numerator));
        if product % divisor != 0 {
            return write!(f, "{bytes} {}", ByteUnit::BYTES.name);
        }
        let thousandths = product / divisor;
        write!(f, "{}", thousandths / 1_000)?;
        let (mut decimals, mut places) = (thousandths % 1_000, 3);
        while decimals != 0 && decimals % 10 == 0 {
            (decimals, places) = (decimals / 10, places - 1);
        }
        if decimals != 0 {
            write!(f, ".{decimals:0places$}")?;
        }
        write!(f, " {}", unit.name)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;

    #[test]
    fn bytes_are_written_in_their_unit_with_few_decimals() {
        let mbit = &ByteUnit { name: "Mbit", numerator: 1_000_000, denominator: 8 };
        for (bytes, unit, text) in [
            (6_250_000, mbit, "50 Mbit"),
            (312_500, mbit, "2.5 Mbit"),
            (125, mbit, "0.001 Mbit"),
            (131_250, mbit, "1.05 Mbit"),
            (1, mbit, "1 bytes"),
            (0, mbit, "0 Mbit"),
            (262_144, ByteUnit::KIB, "256 KiB"),
            (1_000, ByteUnit::KIB, "1000 bytes"),
            (u64::MAX, ByteUnit::BYTES, "18446744073709551615 bytes"),
        ] {
            assert_eq!(BytesIn(bytes, unit).to_string(), text);
        }
    }
}
