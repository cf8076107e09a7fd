//! What this version's policy file takes, found out by asking `ratelimit check`, and the policy written with it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use ratelimit_tests::bpffs::Scratch;

use super::Prefiltering;
use crate::{
    case::{self, Case, SourceLimit},
    traffic,
};

/// What can be asked of the limiter that is measured.
#[derive(Clone, Debug)]
pub(crate) struct Abilities {
    binary: PathBuf,
    /// `gate = false` and `new_sources_per_cpu` under `[source]`.
    pub(crate) prefilter_key: bool,
    /// `[[service]]` with a total.
    pub(crate) service_total: bool,
}

impl Abilities {
    pub(crate) fn find_out(binary: PathBuf) -> Result<Self> {
        let scratch = Scratch::new();
        let accepts = |policy: &str| -> Result<bool> {
            let path = scratch.dir().join("asked.toml");
            fs::write(&path, policy).with_context(|| format!("cannot write {}", path.display()))?;
            let mut check = Command::new(&binary);
            let done = check.arg("check").arg(&path).output();
            Ok(done.with_context(|| format!("cannot start {}", binary.display()))?.status.success())
        };
        let plain = "[source]\nlimits = [\"1 packets/s\"]\n";
        if !accepts(plain)? {
            bail!("{} check refuses even the smallest policy", binary.display());
        }
        let prefilter_key = accepts(&format!("{plain}gate = false\nnew_sources_per_cpu = 10000000\n"))?;
        let service_total = accepts(&format!("{plain}\n{}", service(case::TOTAL_PER_SECOND)))?;
        drop(scratch);
        Ok(Self { binary, prefilter_key, service_total })
    }

    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// What has to be said about the numbers.
    pub(crate) fn notes(&self) -> Vec<String> {
        let no_total = "ratelimit runs without the total on the attacked service, which this version does not \
                        have: its light sources and spoofed packets all pass into the stack";
        (!self.service_total).then(|| no_total.to_owned()).into_iter().collect()
    }

    /// The policy of a case.
    pub(crate) fn policy(&self, case: &Case, prefilter: Prefiltering) -> String {
        let prefilter = match prefilter {
            Prefiltering::Default => "",
            Prefiltering::Off => "gate = false\n",
            Prefiltering::OffWithoutBudget => "gate = false\nnew_sources_per_cpu = 10000000\n",
        };
        let service = case.total.filter(|_| self.service_total).map(service).unwrap_or_default();
        let SourceLimit { packets, per, burst } = case.limit;
        format!(
            "[source]\nlimits = [\"{packets} packets/{} burst {burst}\"]\ntable_entries = {}\n{prefilter}\n{service}",
            per.word(),
            case.table_entries
        )
    }
}

fn service(total: u32) -> String {
    format!(
        "[[service]]\nname = \"attacked\"\nmatch = {{ protocol = \"udp\", ports = [{}] }}\ntotal = [\"{total} packets/s\"]\n",
        traffic::PORT,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abilities(prefilter_key: bool, service_total: bool) -> Abilities {
        Abilities { binary: PathBuf::new(), prefilter_key, service_total }
    }

    #[test]
    fn a_policy_has_what_this_version_takes_and_nothing_else() {
        let case = &case::all(64)[0];
        let plain = abilities(false, false).policy(case, Prefiltering::Default);
        assert_eq!(
            plain,
            "[source]\nlimits = [\"1000 packets/second burst 1000\"]\ntable_entries = 262144\n\n"
        );
        let all = abilities(true, true).policy(case, Prefiltering::Off);
        assert!(
            all.contains("\ngate = false\n") && all.contains("[[service]]") && all.contains("ports = [4242]")
        );
    }

    #[test]
    fn a_missing_total_is_said() {
        assert_eq!(abilities(true, false).notes().len(), 1);
        assert!(abilities(false, true).notes().is_empty());
    }
}
