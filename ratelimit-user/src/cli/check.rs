//! `ratelimit check`: a policy file, offline.

use std::path::{Path, PathBuf};

use clap::Args;
use ratelimit_common::limit::rate::Rate;

use super::{
    Format,
    output::{Output, complain, print, print_json},
};
use crate::{
    config::{self, LoadError, Loaded, Problem},
    failure::Failure,
    policy::{Api, KeyPart, LimitList, Policy, RequestLimit, Service},
    secret_file,
};

/// Check a policy file; needs no root and no daemon.
///
/// All problems are reported at once, each with line and column, as `error:`. A `warning:` is about something that is allowed but probably not meant; with
/// warnings alone the exit code is 0. A `note:` is about what the policy needs of the host.
///
/// Example: ratelimit check /etc/ratelimit.toml
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Policy file
    file: PathBuf,
    #[command(flatten)]
    format: Format,
}

impl CheckArgs {
    pub(super) fn execute(self) -> Result<(), Failure> {
        match load(&self.file) {
            Ok((loaded, packets)) if self.format.output == Output::Json => print_json(&serde_json::json!({
                "ok": true,
                "problems": [],
                "warnings": rows(&loaded.warnings),
                "notes": notes(&loaded.policy, packets),
                "limits": limits(&loaded.policy, packets),
                "apis": apis(&loaded.policy),
                "request_limits": request_rows(&loaded.policy),
            })),
            Ok((loaded, packets)) => {
                loaded.warnings.iter().for_each(|warning| complain(&format!("warning: {warning}")));
                print(&text(&self.file, &loaded.policy, packets))
            }
            Err(LoadError::Problems(problems)) if self.format.output == Output::Json => {
                print_json(
                    &serde_json::json!({ "ok": false, "problems": rows(&problems), "warnings": [], "notes": [], "limits": [], "apis": [], "request_limits": [] }),
                )?;
                Err(Failure::usage(""))
            }
            Err(LoadError::Problems(problems)) => {
                problems.iter().for_each(|problem| complain(&format!("error: {problem}")));
                Err(Failure::usage(""))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The policy, and whether it limits packets. Tokens are compared if they can be read here; whoever may not read them is told nothing of them.
fn load(file: &Path) -> Result<(Loaded, bool), LoadError> {
    let (loaded, packets) = config::load_to_check(file)?;
    match loaded.policy.listen().both_tokens() {
        Some((one, other)) if secret_file::share_a_token(one, other) => {
            Err(config::problem_with(file, "listen", "operator_token_file", config::OPERATORS_ARE_OTHERS))
        }
        _ => Ok((loaded, packets)),
    }
}

fn text(file: &Path, policy: &Policy, packets: bool) -> String {
    let mut text = format!("{}: ok\n", file.display());
    for (name, rate) in named(policy, packets) {
        text.push_str(&format!("  {name}: {rate}\n"));
    }
    for (name, limits) in request_limits(policy) {
        text.push_str(&format!("  {name}: {}\n", in_words(&limits)));
    }
    for note in notes(policy, packets) {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

/// What the policy asks of a host, which cannot be seen from here. `run` and `status` look there.
fn notes(policy: &Policy, packets: bool) -> Vec<String> {
    let named = |asks: &dyn Fn(&Service) -> bool| -> Vec<&str> {
        policy.services().iter().filter(|service| asks(service)).map(Service::name).collect()
    };
    let mut notes = Vec::new();
    if !packets {
        notes.push("without [source] no packet is limited: ratelimit serve takes this policy, ratelimit run does not".to_owned());
    }
    let cookies = named(&|service| service.syn_cookies().is_some());
    if !cookies.is_empty() {
        notes.push(format!(
            "SYN cookies ({}) need net.ipv4.tcp_syncookies=2 on the host, and a firewall that follows connections must not insist on seeing \
             SYNs; no cookies are sent for ports that the host forwards or translates (docs/policy.md, SYN cookies and firewalls)",
            cookies.join(", ")
        ));
    }
    let answers = named(&|service| service.answers().next().is_some());
    if !answers.is_empty() {
        notes.push(format!(
            "the kernel program sends no SYN cookies and no refusals ({}) on links whose frames are IP packets, nor where a driver keeps VLAN tags apart (ethtool -K IFACE rxvlan off \
             cures that), nor on a veth whose other end runs no XDP program",
            answers.join(", ")
        ));
    }
    notes
}

/// The JSON form of a problem or warning, which are in lists of their own. Scripts read it: fields are added, never renamed.
fn rows(problems: &[Problem]) -> Vec<serde_json::Value> {
    let row = |problem: &Problem| {
        let Problem { file, line, column, message } = problem;
        serde_json::json!({ "file": file, "line": line, "column": column, "message": message, "sentence": problem.to_string() })
    };
    problems.iter().map(row).collect()
}

fn limits(policy: &Policy, packets: bool) -> Vec<serde_json::Value> {
    let row = |(name, rate): (String, Rate)| serde_json::json!({ "name": name, "rate": rate.to_string() });
    named(policy, packets).into_iter().map(row).collect()
}

/// The JSON form of APIs.
fn apis(policy: &Policy) -> Vec<serde_json::Value> {
    let row = |api: &Api| {
        let key: Vec<&str> = api.key.iter().map(KeyPart::name).collect();
        serde_json::json!({ "name": api.name, "key": key, "login": api.login.is_some(), "sharing": api.sharing.name() })
    };
    policy.requests().apis.iter().map(row).collect()
}

fn request_rows(policy: &Policy) -> Vec<serde_json::Value> {
    let row = |(name, limits): (String, Vec<RequestLimit>)| {
        let limits: Vec<String> = limits.iter().map(ToString::to_string).collect();
        serde_json::json!({ "name": name, "limits": limits })
    };
    request_limits(policy).into_iter().map(row).collect()
}

/// Every list of limits of requests, by where it stands: those of an API with what its callers are told apart by.
fn request_limits(policy: &Policy) -> Vec<(String, Vec<RequestLimit>)> {
    let mut all = Vec::new();
    for api in policy.requests().apis.iter() {
        let name = &api.name;
        match &api.login {
            Some(login) => all.extend([
                (format!("api.{name} per ip"), login.per_ip.clone()),
                (format!("api.{name} per user and ip"), login.per_user_and_ip.clone()),
                (format!("api.{name} per user"), login.per_user.clone()),
            ]),
            None => {
                let key: Vec<&str> = api.key.iter().map(KeyPart::name).collect();
                all.push((format!("api.{name} per {}", key.join(" and ")), api.limits.clone()));
            }
        }
        all.extend(
            api.by_plan.iter().map(|(plan, limits)| (format!("api.{name} for plan {plan}"), limits.clone())),
        );
        all.extend(
            api.by_user.iter().map(|(user, limits)| (format!("api.{name} for user {user}"), limits.clone())),
        );
    }
    let users = policy.users();
    let of_plans = users.plans().filter(|plan| !plan.requests().is_empty());
    all.extend(of_plans.map(|plan| (format!("plan.{} of requests", plan.name()), plan.requests().to_vec())));
    let own = users.iter().filter_map(|user| Some((user.name(), user.requests()?)));
    all.extend(own.map(|(name, limits)| (format!("user.{name} of requests"), limits.to_vec())));
    all
}

fn in_words(limits: &[RequestLimit]) -> String {
    let words: Vec<String> = limits.iter().map(ToString::to_string).collect();
    if words.is_empty() { "no limits".to_owned() } else { words.join(", ") }
}

/// Every limit as it stands in the file: those that users have from their plans stand there once. What sources are held to does not stand there
/// if packets are not limited.
fn named(policy: &Policy, packets: bool) -> Vec<(String, Rate)> {
    let lists = policy.limit_lists().into_iter().filter(|list| policy.inherited(list).is_none());
    let lists = lists.filter(|list| packets || *list != LimitList::Source);
    let named = |list: LimitList| {
        let rates = policy.rates(&list);
        list.limit_names(&rates).into_iter().zip(rates).collect::<Vec<_>>()
    };
    lists.flat_map(named).collect()
}
