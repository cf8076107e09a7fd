//! What holds for every source: its limits, and the prefix lengths that define a source.

use std::net::IpAddr;

use ratelimit_common::{
    abi::{Limit, MAX_LIMITS},
    limit::rate::{Rate, RateError},
};

use super::{
    fields::{Fields, followed, restarted},
    limit_list::LimitList,
    prefix::Prefix,
};

/// Sources in the table unless the policy says otherwise: about 30 MB of kernel memory.
pub const DEFAULT_TABLE_ENTRIES: u32 = 262_144;
/// Most sources a table can have.
pub const MAX_TABLE_ENTRIES: u32 = 16_777_216;

/// One limit with the name that `limit get` and `limit set` know it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    name: String,
    rate: Rate,
    limit: Limit,
}

impl NamedLimit {
    /// The name of the limit: `source.packets`, `source.bytes`, `source.syns`; the second limit of a meter is `source.packets-2`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rate as the operator wrote it.
    pub fn rate(&self) -> &Rate {
        &self.rate
    }

    /// The limit as the kernel enforces it.
    pub fn limit(&self) -> Limit {
        self.limit
    }
}

/// What holds for every source: limits, prefix lengths, and the size of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePolicy {
    limits: Vec<NamedLimit>,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
    table_entries: u32,
}

/// Why the settings of sources are rejected. `index` counts the limits as given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// A source needs at least one limit.
    #[error("limits is empty; name at least one, such as limits = [\"5000 packets/s burst 10000\"]")]
    NoLimits,
    /// More limits than a bucket has words.
    #[error(
        "{count} limits are more than a source can have; use at most {MAX_LIMITS}, a soft or elastic one counts as two"
    )]
    TooManyLimits {
        /// How many words the limits take.
        count: usize,
    },
    /// A rate that cannot be enforced.
    #[error("limit \"{rate}\": {error}")]
    Rate {
        /// Place in the list of the file, from 0.
        index: usize,
        /// The rejected value, as the policy file has it.
        rate: Rate,
        /// Why the limit cannot be held.
        error: RateError,
    },
    /// A limit that never decides, because another one is at least as strict.
    #[error(
        "limit \"{rate}\" never decides: \"{by}\" is at least as strict in rate and burst; remove one of them"
    )]
    NeverDecides {
        /// Place in the list of the file, from 0.
        index: usize,
        /// The rejected value, as the policy file has it.
        rate: Rate,
        /// The limit that decides instead.
        by: Rate,
    },
    /// A source prefix of no bits, or too many.
    #[error("{key} = {value} is out of range; use 1 to {max}")]
    Prefix {
        /// `ipv4_prefix` or `ipv6_prefix`.
        key: &'static str,
        /// The rejected value, as the policy file has it.
        value: i64,
        /// The number of bits of an address in the family.
        max: u8,
    },
    /// A table of no entries, or too many.
    #[error("table_entries = {value} is out of range; use 1 to {MAX_TABLE_ENTRIES}")]
    TableEntries {
        /// The rejected value, as the policy file has it.
        value: i64,
    },
}

impl SourcePolicy {
    /// Checks all settings. The error lists every problem.
    pub fn new(
        rates: &[Rate],
        ipv4_prefix: i64,
        ipv6_prefix: i64,
        table_entries: i64,
    ) -> Result<Self, Vec<SourceError>> {
        let mut errors = Vec::new();
        let limits = name_limits(rates, &mut errors);
        let ipv4_prefix = in_range("ipv4_prefix", ipv4_prefix, 32, &mut errors);
        let ipv6_prefix = in_range("ipv6_prefix", ipv6_prefix, 128, &mut errors);
        let table = u32::try_from(table_entries).ok().filter(|n| (1..=MAX_TABLE_ENTRIES).contains(n));
        if table.is_none() {
            errors.push(SourceError::TableEntries { value: table_entries });
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self { limits, ipv4_prefix, ipv6_prefix, table_entries: table.unwrap_or(DEFAULT_TABLE_ENTRIES) })
    }

    /// The settings of sources in words, for `diff`. Limits are compared one by one elsewhere.
    pub(super) fn fields(&self) -> Fields {
        let mut fields = followed([
            ("ipv4_prefix", self.ipv4_prefix.to_string()),
            ("ipv6_prefix", self.ipv6_prefix.to_string()),
        ]);
        fields.extend(restarted([("table_entries", self.table_entries.to_string())]));
        fields
    }

    /// All limits, in the order of the file.
    pub fn limits(&self) -> &[NamedLimit] {
        &self.limits
    }

    /// Length in bits of the IPv4 prefix that is one source.
    pub fn ipv4_prefix(&self) -> u8 {
        self.ipv4_prefix
    }

    /// Length in bits of the IPv6 prefix that is one source.
    pub fn ipv6_prefix(&self) -> u8 {
        self.ipv6_prefix
    }

    /// The source that an address belongs to.
    pub fn around(&self, address: IpAddr) -> Prefix {
        Prefix::masked(address, if address.is_ipv4() { self.ipv4_prefix } else { self.ipv6_prefix })
    }

    /// Number of sources that the table has room for.
    pub fn table_entries(&self) -> u32 {
        self.table_entries
    }

    /// A copy with other limits per source.
    pub fn with_limits(&self, rates: &[Rate]) -> Result<Self, SourceError> {
        let mut errors = Vec::new();
        let limits = name_limits(rates, &mut errors);
        // Under attack an operator tightens one limit, and another one may never decide any more. In a file that is a mistake;
        // here it is intended.
        errors.retain(|error| !matches!(error, SourceError::NeverDecides { .. }));
        match errors.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(Self { limits, ..self.clone() }),
        }
    }
}

fn name_limits(rates: &[Rate], errors: &mut Vec<SourceError>) -> Vec<NamedLimit> {
    if rates.is_empty() {
        errors.push(SourceError::NoLimits);
    }
    let places = Rate::places(rates);
    if places > MAX_LIMITS {
        errors.push(SourceError::TooManyLimits { count: places });
    }
    let names = LimitList::Source.limit_names(rates);
    let mut limits = Vec::new();
    for (index, rate) in rates.iter().enumerate() {
        match rate.limit() {
            Ok(limit) => {
                limits.push(NamedLimit { name: names[index].clone(), rate: *rate, limit });
            }
            Err(error) => errors.push(SourceError::Rate { index, rate: *rate, error }),
        }
        // Of two equal limits, the second one never decides.
        let stricter = rates.iter().enumerate().find(|(other, by)| {
            *other != index
                && by.at_least_as_strict_as(rate)
                && (*other < index || !rate.at_least_as_strict_as(by))
        });
        if let Some((_, by)) = stricter {
            errors.push(SourceError::NeverDecides { index, rate: *rate, by: *by });
        }
    }
    limits
}

fn in_range(key: &'static str, value: i64, max: u8, errors: &mut Vec<SourceError>) -> u8 {
    match u8::try_from(value) {
        Ok(bits) if (1..=max).contains(&bits) => bits,
        _ => {
            errors.push(SourceError::Prefix { key, value, max });
            max
        }
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_common::limit::text::parse_rate;

    use super::*;

    fn policy(rates: &[&str]) -> Result<SourcePolicy, Vec<SourceError>> {
        let rates: Vec<Rate> = rates.iter().map(|text| parse_rate(text).unwrap()).collect();
        SourcePolicy::new(&rates, 32, 64, 1000)
    }

    fn names(policy: &SourcePolicy) -> Vec<&str> {
        policy.limits().iter().map(NamedLimit::name).collect()
    }

    #[test]
    fn limits_are_named_by_meter_and_numbered_from_the_second_on() {
        let policy = policy(&["10 packets/s", "100 packets/hour", "5 syns/s", "1 MB/s"]).unwrap();
        assert_eq!(names(&policy), ["source.packets", "source.packets-2", "source.syns", "source.bytes"]);
    }

    #[test]
    fn a_limit_that_another_forestalls_is_named_together_with_it() {
        let errors = policy(&["10 packets/s burst 20", "5 packets/s burst 10"]).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        let text = errors[0].to_string();
        assert!(text.contains("10 packets/s burst 20") && text.contains("5 packets/s burst 10"), "{text}");
        assert!(
            policy(&["10 packets/s burst 20", "5 packets/s burst 100"]).is_ok(),
            "each decides at some time"
        );
        assert_eq!(policy(&["7 syns/s", "7 syns/s"]).unwrap_err().len(), 1, "equal limits count once");
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let rates: Vec<Rate> =
            ["0 packets/s", "5 packets/s burst 0"].iter().map(|t| parse_rate(t).unwrap()).collect();
        let errors = SourcePolicy::new(&rates, 0, 129, 0).unwrap_err();
        assert!(errors.len() >= 5, "{errors:?}");
    }

    #[test]
    fn a_limit_can_be_tightened_until_another_has_nothing_to_decide() {
        let policy = policy(&["1000/s burst 2000", "10000/min burst 20000"]).unwrap();
        let rates = ["100/s burst 200", "10000/min burst 20000"].map(|text| parse_rate(text).unwrap());
        let after = policy.with_limits(&rates).unwrap();
        assert_eq!(after.limits()[0].rate(), &rates[0]);
        assert_eq!(after.limits().len(), 2);
        assert_eq!(policy.with_limits(&[]), Err(SourceError::NoLimits));
    }
}
