//! `ratelimit doctor`: what of this host is in the way?

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::{
    DEFAULT_PIN, DaemonArgs, Format,
    output::{Output, print, print_json},
};
use crate::{
    config,
    doctor::{self, Grade, HostFinding, Whereabouts},
    failure::{ExitCode, Failure},
};

/// Look for what is in the way of protection on this host, and say what to do about it.
///
/// Looks at the kernel, memory, clock and settings, at interfaces and their drivers, at the store, and at the daemon. Nothing is attached and
/// nothing is changed. Without root some things are not known. Exits with 1 when something should be done.
///
/// Without --iface, looks at the interfaces of the policy, or at those that are guarded, or at those with a default route.
///
/// Example: ratelimit doctor --iface eth0 --policy /etc/ratelimit.toml
#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Interface to look at; may be given more than once
    #[arg(long = "iface", value_name = "NAME")]
    interfaces: Vec<String>,
    /// Policy file: what it asks of the host is looked for, and its store is asked
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Pin directory
    #[arg(long, value_name = "DIR", default_value = DEFAULT_PIN)]
    pin: PathBuf,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    format: Format,
}

/// The JSON form. Scripts read it: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Diagnosis<'a> {
    ok: bool,
    warnings: usize,
    failures: usize,
    unknown: usize,
    findings: &'a [HostFinding],
}

impl Doctor {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let policy = self.policy.as_deref().map(config::load_to_check).transpose()?;
        let place = Whereabouts {
            interfaces: self.interfaces,
            policy: policy.map(|(loaded, _)| loaded.policy),
            state: self.daemon.state,
            pin: self.pin,
            proc: "/proc".into(),
        };
        let findings = doctor::examine(&doctor::read(&place)?);
        let diagnosis = diagnosis(&findings);
        match self.format.output {
            Output::Json => print_json(&diagnosis)?,
            Output::Text => print(&text(&diagnosis))?,
        }
        if diagnosis.ok { Ok(()) } else { Err(Failure::new(ExitCode::Found, "")) }
    }
}

fn diagnosis(findings: &[HostFinding]) -> Diagnosis<'_> {
    let count = |grade: Grade| findings.iter().filter(|finding| finding.grade == grade).count();
    Diagnosis {
        ok: !findings.iter().any(|finding| finding.grade.is_found()),
        warnings: count(Grade::Warn),
        failures: count(Grade::Fail),
        unknown: count(Grade::Unknown),
        findings,
    }
}

fn text(diagnosis: &Diagnosis<'_>) -> String {
    let subject = |finding: &HostFinding| match &finding.interface {
        Some(interface) => format!("{interface} {}", finding.check),
        None => finding.check.to_owned(),
    };
    let width = diagnosis.findings.iter().map(|finding| subject(finding).chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in diagnosis.findings {
        let (grade, subject) = (finding.grade.name(), subject(finding));
        text.push_str(&format!("{grade:<7}  {subject:<width$}  {}\n", finding.message));
        if let Some(remedy) = &finding.remedy {
            text.push_str(&format!("{:<7}  {:<width$}  do: {remedy}\n", "", ""));
        }
    }
    let Diagnosis { warnings, failures, unknown, .. } = diagnosis;
    text.push_str(&format!("{failures} to fix, {warnings} to consider, {unknown} not known\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line_with_what_to_do_below_it() {
        let finding = |check, interface: Option<&str>, grade, remedy: Option<&str>| HostFinding {
            check,
            interface: interface.map(str::to_owned),
            grade,
            message: "so it is".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let findings = [
            finding("kernel", None, Grade::Ok, None),
            finding("ring", Some("eth0"), Grade::Warn, Some("ethtool -G eth0 rx 1024")),
        ];
        assert_eq!(
            text(&diagnosis(&findings)),
            "ok       kernel     so it is\n\
             warn     eth0 ring  so it is\n\
             \x20                   do: ethtool -G eth0 rx 1024\n\
             0 to fix, 1 to consider, 0 not known\n"
        );
        assert!(!diagnosis(&findings).ok && diagnosis(&findings[..1]).ok);
        let unknown = [finding("jit", None, Grade::Unknown, None)];
        assert!(diagnosis(&unknown).ok, "what is not known is no finding");
    }
}
