//! Refusing what would cut somebody off who must not be: the operator, and whoever keeps this host running.

use std::path::Path;

use crate::{
    compile::lists::{Change, Lists, Outlook, Prefix},
    control::protocol::Operator,
    dataplane::address,
    failure::{ExitCode, Failure},
    lockout::{self, Vital},
    policy::Policy,
};

/// Addresses named in a refusal.
const SHOWN: usize = 5;

/// Refuses a policy that leaves too little for somebody's session.
pub(super) fn refuse_starving(
    next: &Policy,
    in_force: &Policy,
    lists: &Lists,
    operator: &Operator,
) -> Result<(), Failure> {
    if operator.force || !lockout::could_starve(next) {
        return Ok(());
    }
    let reasons = lockout::starved(next, in_force, &Outlook::new(lists, &[]), &vital(operator)?);
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "refused, somebody would be cut off: {}; put their address on the allow list first, or use --force",
        reasons.join("; ")
    )))
}

/// Refuses lists with which somebody inside `prefix` would be cut off.
pub(super) fn refuse_cut_off(
    prefix: &Prefix,
    lists: &Lists,
    changes: &[Change],
    now_ns: u64,
    operator: &Operator,
) -> Result<(), Failure> {
    if operator.force {
        return Ok(());
    }
    let vital = vital(operator)?;
    let cut = lockout::cut_off(prefix, &Outlook::new(lists, changes), now_ns, &vital);
    if cut.is_empty() {
        return Ok(());
    }
    let reasons: Vec<String> = cut.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = cut.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(Failure::usage(format!(
        "refused, {prefix} would be blocked: {}{more}; put what must stay on the allow list first, or use --force",
        reasons.join("; ")
    )))
}

/// Everybody who must not be cut off, as of now.
pub(super) fn vital(operator: &Operator) -> Result<Vec<Vital>, Failure> {
    let unknown = |reason: String| {
        let message =
            format!("cannot tell who would be cut off: {reason}; --force goes ahead without looking");
        Failure::new(ExitCode::Unsupported, message)
    };
    let own = address::list().map_err(|error| unknown(error.to_string()))?;
    lockout::discover(Path::new("/proc"), own, operator.origin)
        .map_err(|error| unknown(format!("/proc/net: {error}")))
}
