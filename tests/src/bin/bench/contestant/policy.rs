//! The limiter's policy of a case.

use super::Prefiltering;
use crate::{
    case::{Case, SourceLimit},
    traffic,
};

pub(super) fn of(case: &Case, prefilter: Prefiltering) -> String {
    let prefilter = match prefilter {
        Prefiltering::Default => "",
        Prefiltering::Off => "gate = false\n",
        Prefiltering::OffWithoutBudget => "gate = false\nnew_sources_per_cpu = 10000000\n",
    };
    let service = case.total.map(|total| service("attacked", traffic::PORT, total)).unwrap_or_default();
    let SourceLimit { packets, per, burst } = case.limit;
    format!(
        "[source]\nlimits = [\"{packets} packets/{} burst {burst}\"]\ntable_entries = {}\n{prefilter}\n{service}",
        per.word(),
        case.table_entries
    )
}

/// A UDP service with a total, in packets per second.
pub(crate) fn service(name: &str, port: u16, total: u32) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nmatch = {{ protocol = \"udp\", ports = [{port}] }}\ntotal = [\"{total} packets/s\"]\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    #[test]
    fn the_policy_of_every_case_is_understood() {
        for case in case::all(64) {
            for prefilter in [Prefiltering::Default, Prefiltering::Off, Prefiltering::OffWithoutBudget] {
                let policy = ratelimit_tests::policies::parsed(&of(&case, prefilter));
                assert_eq!(
                    policy.services().iter().len(),
                    usize::from(case.total.is_some()),
                    "{}",
                    case.name
                );
            }
        }
    }
}
