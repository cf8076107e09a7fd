//! The words for units and periods, and hints for words that are almost one of them.

use super::Fault;
use crate::abi::Meter;
use crate::limit::{rate::Period, units::ByteUnit};

/// A unit of what its meter counts.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    pub(super) meter: Meter,
    /// How much one unit is; 1 for what is not bytes.
    pub(super) size: &'static ByteUnit,
}

impl Unit {
    pub(super) const PACKETS: Self = Self::one(Meter::Packets);

    pub(super) const fn one(meter: Meter) -> Self {
        Self { meter, size: ByteUnit::BYTES }
    }
}

const fn bytes(size: &'static ByteUnit) -> Unit {
    Unit { meter: Meter::Bytes, size }
}

const UNITS: &[(&str, Unit)] = &[
    ("packets", Unit::PACKETS),
    ("packet", Unit::PACKETS),
    ("pkts", Unit::PACKETS),
    ("pkt", Unit::PACKETS),
    ("syns", Unit::one(Meter::Syns)),
    ("syn", Unit::one(Meter::Syns)),
    ("fragments", Unit::one(Meter::Fragments)),
    ("fragment", Unit::one(Meter::Fragments)),
    ("bytes", bytes(ByteUnit::BYTES)),
    ("byte", bytes(ByteUnit::BYTES)),
    ("B", bytes(ByteUnit::BYTES)),
    ("kB", bytes(ByteUnit::KB)),
    ("KB", bytes(ByteUnit::KB)),
    ("MB", bytes(&ByteUnit { name: "MB", numerator: 1_000_000, denominator: 1 })),
    ("GB", bytes(&ByteUnit { name: "GB", numerator: 1_000_000_000, denominator: 1 })),
    ("KiB", bytes(ByteUnit::KIB)),
    ("MiB", bytes(&ByteUnit { name: "MiB", numerator: 1 << 20, denominator: 1 })),
    ("GiB", bytes(&ByteUnit { name: "GiB", numerator: 1 << 30, denominator: 1 })),
    ("bit", bytes(&ByteUnit { name: "bit", numerator: 1, denominator: 8 })),
    ("kbit", bytes(&ByteUnit { name: "kbit", numerator: 1_000, denominator: 8 })),
    ("Mbit", bytes(&ByteUnit { name: "Mbit", numerator: 1_000_000, denominator: 8 })),
    ("Gbit", bytes(&ByteUnit { name: "Gbit", numerator: 1_000_000_000, denominator: 8 })),
];

/// Spellings in which the case of one letter decides between bytes and bits. They are refused, never guessed.
const AMBIGUOUS: &[(&str, &str, &str)] = &[
    ("b", "B", "bit"),
    ("kb", "kB", "kbit"),
    ("mb", "MB", "Mbit"),
    ("gb", "GB", "Gbit"),
    ("kib", "KiB", "kbit"),
    ("mib", "MiB", "Mbit"),
    ("gib", "GiB", "Gbit"),
];

/// Spellings that other tools use, and the right ones here.
const FOREIGN: &[(&str, &str)] = &[
    ("k", "k"),
    ("m", "M"),
    ("bits", "bit"),
    ("kbits", "kbit"),
    ("mbits", "Mbit"),
    ("gbits", "Gbit"),
    ("pps", "packets/s"),
    ("kpps", "k packets/s"),
    ("mpps", "M packets/s"),
    ("bps", "bit/s"),
    ("kbps", "kbit/s"),
    ("mbps", "Mbit/s"),
    ("gbps", "Gbit/s"),
];

pub(super) fn unit(word: &str) -> Result<Unit, Fault> {
    if let Some((_, unit)) = UNITS.iter().find(|(name, _)| *name == word) {
        return Ok(*unit);
    }
    if let Some((_, bytes, bits)) = AMBIGUOUS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(word)) {
        return Err(Fault::AmbiguousUnit { bytes, bits });
    }
    let mut known = UNITS.iter().map(|(name, _)| (*name, *name)).chain(FOREIGN.iter().copied());
    let hint = known.find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, hint)| hint);
    Err(Fault::UnknownUnit { hint: hint.filter(|hint| *hint != word) })
}

pub(super) fn period(word: &str) -> Option<Period> {
    match word {
        "s" | "sec" | "second" => Some(Period::Second),
        "min" | "minute" => Some(Period::Minute),
        "h" | "hour" => Some(Period::Hour),
        "d" | "day" => Some(Period::Day),
        "month" => Some(Period::Month),
        _ => None,
    }
}
