//! `ratelimit check`: a policy file, offline.

use std::path::{Path, PathBuf};

use clap::Args;
use ratelimit_common::{abi::OnLimit, limit::rate::Rate};

use super::{
    Format,
    output::{Output, complain, print, print_json},
};
use crate::{
    config::{self, LoadError, Problem},
    failure::Failure,
    policy::{LimitList, Policy, Service},
};

/// Check a policy file; needs no root and no daemon.
///
/// All problems are reported at once, each with line and column. Warnings are about what is allowed but probably not meant; with nothing
/// else the exit code is 0. Notes are about what the policy needs of the host.
///
/// Example: ratelimit check /etc/ratelimit.toml
#[derive(Debug, Args)]
pub(super) struct Check {
    /// Policy file
    file: PathBuf,
    #[command(flatten)]
    format: Format,
}

impl Check {
    pub(super) fn execute(self) -> Result<(), Failure> {
        match config::load(&self.file) {
            Ok(loaded) if self.format.output == Output::Json => print_json(&serde_json::json!({
                "ok": true,
                "problems": [],
                "warnings": rows(&loaded.warnings),
                "notes": notes(&loaded.policy),
                "limits": limits(&loaded.policy),
            })),
            Ok(loaded) => {
                loaded.warnings.iter().for_each(|warning| complain(&format!("warning: {warning}")));
                print(&text(&self.file, &loaded.policy))
            }
            Err(LoadError::Problems(problems)) if self.format.output == Output::Json => {
                print_json(
                    &serde_json::json!({ "ok": false, "problems": rows(&problems), "warnings": [], "notes": [], "limits": [] }),
                )?;
                Err(Failure::usage(""))
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn text(file: &Path, policy: &Policy) -> String {
    let mut text = format!("{}: ok\n", file.display());
    for (name, rate) in named(policy) {
        text.push_str(&format!("  {name}: {rate}\n"));
    }
    for note in notes(policy) {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

/// What the policy asks of a host, which cannot be seen from here. `run` and `status` look there.
fn notes(policy: &Policy) -> Vec<String> {
    let named = |asks: &dyn Fn(&Service) -> bool| -> Vec<&str> {
        policy.services().iter().filter(|service| asks(service)).map(Service::name).collect()
    };
    let mut notes = Vec::new();
    let cookies = named(&|service| service.syn_cookies().is_some());
    if !cookies.is_empty() {
        notes.push(format!(
            "SYN cookies ({}) need net.ipv4.tcp_syncookies=2 on the host, and a firewall that follows connections must not insist on seeing \
             SYNs (docs/policy.md, SYN cookies and firewalls)",
            cookies.join(", ")
        ));
    }
    let answers = named(&|service| service.syn_cookies().is_some() || service.on_limit() == OnLimit::Reject);
    if !answers.is_empty() {
        notes.push(format!(
            "nobody is answered ({}) on links whose frames are IP packets, nor where a driver keeps VLAN tags apart (ethtool -K IFACE rxvlan off \
             cures the latter)",
            answers.join(", ")
        ));
    }
    notes
}

/// The JSON form of a problem or warning. Scripts read it: fields are added, never renamed.
fn rows(problems: &[Problem]) -> Vec<serde_json::Value> {
    let row = |problem: &Problem| {
        let Problem { file, line, column, message } = problem;
        serde_json::json!({ "file": file, "line": line, "column": column, "message": message, "sentence": problem.to_string() })
    };
    problems.iter().map(row).collect()
}

fn limits(policy: &Policy) -> Vec<serde_json::Value> {
    let row = |(name, rate): (String, Rate)| serde_json::json!({ "name": name, "rate": rate.to_string() });
    named(policy).into_iter().map(row).collect()
}

/// Every limit as it stands in the file: those that users have from their plans stand there once.
fn named(policy: &Policy) -> Vec<(String, Rate)> {
    let lists = policy.limit_lists().into_iter().filter(|list| policy.inherited(list).is_none());
    let named = |list: LimitList| {
        let rates = policy.rates(&list);
        list.limit_names(&rates).into_iter().zip(rates).collect::<Vec<_>>()
    };
    lists.flat_map(named).collect()
}
