//! Limits of the host as a whole: totals of packets, and the cap on frames without a source.

use ratelimit_common::{
    abi::Meter,
    limit::{
        manner::{Manner, Throttle},
        rate::{Period, Rate, RateError},
    },
};

use super::fields::{Fields, followed};

/// Packets per second without a source that one interface hands on, unless the policy says otherwise: far more than a quiet link has, and
/// little for a CPU.
const DEFAULT_LINK: u64 = 20_000;
/// The lowest cap in packets per second at which neighbours still find each other.
const LEAST_LINK: u64 = 100;

/// The table `[host]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPolicy {
    totals: Vec<Rate>,
    link: Option<Rate>,
}

/// Why the limits of `[host]` are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// A total in a meter other than packets and bytes.
    #[error("[host]: a total in {} is not possible; use packets or bytes", .rate.meter.name())]
    Meter {
        /// The rejected value, as the policy file has it.
        rate: Rate,
    },
    /// A total that is not a hard token bucket.
    #[error(
        "[host]: \"{rate}\" cannot be the limit of a total, which is a hard token bucket; leave out all behind the burst"
    )]
    Manner {
        /// The rejected value, as the policy file has it.
        rate: Rate,
    },
    /// A limit that cannot be held.
    #[error("[host]: limit \"{rate}\": {error}")]
    Rate {
        /// The rejected value, as the policy file has it.
        rate: Rate,
        /// Why the limit cannot be held.
        error: RateError,
    },
    /// Two totals of one meter.
    #[error("[host] has two totals in {}; use one", .rate.meter.name())]
    TwoTotals {
        /// The second total of that meter.
        rate: Rate,
    },
    /// A cap in a meter other than packets.
    #[error("[host]: link in {} is not possible; write it in packets, \"20000 packets/s\"", .rate.meter.name())]
    LinkMeter {
        /// The rejected value, as the policy file has it.
        rate: Rate,
    },
    /// A cap that is not a hard token bucket.
    #[error("[host]: link = \"{rate}\" is a hard token bucket; leave out all behind the burst")]
    LinkManner {
        /// The rejected value, as the policy file has it.
        rate: Rate,
    },
    /// A cap too low for neighbours to find each other.
    #[error(
        "[host]: link = \"{rate}\" leaves neighbours too little to find this host by; use at least {LEAST_LINK} packets/s with a burst of {LEAST_LINK}, or false"
    )]
    LinkTooSmall {
        /// The rejected value, as the policy file has it.
        rate: Rate,
    },
}

impl Default for HostPolicy {
    fn default() -> Self {
        Self { totals: Vec::new(), link: Some(Self::default_link()) }
    }
}

impl HostPolicy {
    /// The cap of one interface unless the policy names another.
    pub fn default_link() -> Rate {
        Rate {
            meter: Meter::Packets,
            amount: DEFAULT_LINK,
            period: Period::Second,
            burst: DEFAULT_LINK,
            manner: Manner::PLAIN,
            units: Rate::UNTYPED,
        }
    }

    /// Replaces the totals of the host.
    pub fn with_totals(self, totals: Vec<Rate>) -> Result<Self, HostError> {
        for (at, rate) in totals.iter().enumerate() {
            let rate = *rate;
            if !matches!(rate.meter, Meter::Packets | Meter::Bytes) {
                return Err(HostError::Meter { rate });
            }
            if !is_plain(&rate) {
                return Err(HostError::Manner { rate });
            }
            if let Err(error) = rate.limit() {
                return Err(HostError::Rate { rate, error });
            }
            if totals[..at].iter().any(|other| other.meter == rate.meter) {
                return Err(HostError::TwoTotals { rate });
            }
        }
        Ok(Self { totals, ..self })
    }

    /// Replaces the cap on frames without a source; `None` removes it.
    pub fn with_link(self, link: Option<Rate>) -> Result<Self, HostError> {
        if let Some(rate) = link {
            if rate.meter != Meter::Packets {
                return Err(HostError::LinkMeter { rate });
            }
            if !is_plain(&rate) {
                return Err(HostError::LinkManner { rate });
            }
            let least = u128::from(LEAST_LINK) * u128::from(rate.period.ns());
            if u128::from(rate.amount) * u128::from(Period::Second.ns()) < least || rate.burst < LEAST_LINK {
                return Err(HostError::LinkTooSmall { rate });
            }
            if let Err(error) = rate.limit() {
                return Err(HostError::Rate { rate, error });
            }
        }
        Ok(Self { link, ..self })
    }

    /// The host in words, for `diff`.
    pub(super) fn fields(&self) -> Fields {
        let link = self.link.as_ref().map_or("false".to_owned(), ToString::to_string);
        let mut fields = followed([("link", link)]);
        for rate in &self.totals {
            let field = if rate.meter == Meter::Bytes { "total in bytes" } else { "total in packets" };
            fields.insert(field.into(), (rate.to_string(), false));
        }
        fields
    }

    /// Totals: limits on all packets to the host together.
    pub fn totals(&self) -> &[Rate] {
        &self.totals
    }

    /// The cap of each interface on frames without a source.
    pub fn link(&self) -> Option<&Rate> {
        self.link.as_ref()
    }
}

fn is_plain(rate: &Rate) -> bool {
    !rate.manner.algorithm.is_window() && rate.manner.throttle == Throttle::Hard
}

#[cfg(test)]
mod tests {
    use ratelimit_common::limit::text::parse_rate;

    use super::*;

    fn rates(texts: &[&str]) -> Vec<Rate> {
        texts.iter().map(|text| parse_rate(text).unwrap()).collect()
    }

    #[test]
    fn a_total_is_one_hard_bucket_in_packets_and_one_in_bytes() {
        let host = |texts: &[&str]| HostPolicy::default().with_totals(rates(texts));
        assert_eq!(host(&["200000 packets/s", "2 Gbit/s"]).unwrap().totals().len(), 2);
        assert!(matches!(host(&["10 syns/s"]), Err(HostError::Meter { .. })));
        assert!(matches!(host(&["10 packets/s", "20 packets/s"]), Err(HostError::TwoTotals { .. })));
        assert!(matches!(host(&["10 packets/s soft 10%"]), Err(HostError::Manner { .. })));
        assert!(matches!(host(&["10 packets/min fixed-window"]), Err(HostError::Manner { .. })));
    }

    #[test]
    fn a_cap_that_would_cut_off_neighbours_is_refused() {
        let link = |text: &str| HostPolicy::default().with_link(Some(parse_rate(text).unwrap()));
        assert!(link("100 packets/s").is_ok() && link("6000 packets/min").is_ok());
        assert!(matches!(link("99 packets/s"), Err(HostError::LinkTooSmall { .. })));
        assert!(matches!(link("1000 packets/s burst 10"), Err(HostError::LinkTooSmall { .. })));
        assert!(matches!(link("1 MB/s"), Err(HostError::LinkMeter { .. })));
        assert!(matches!(link("500 packets/s soft 10%"), Err(HostError::LinkManner { .. })));
        assert!(HostPolicy::default().with_link(None).unwrap().link().is_none());
    }
}
