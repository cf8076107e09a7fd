//! Refusing what would cut somebody off who must not be: the operator, and whoever keeps this host running.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use super::{lists::ListChanger, lookout::Lookout};
use crate::{
    compile::lists::{Lists, Outlook, Prefix},
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
    let (mut vital, _) = look()?;
    vital.extend(operator.origin.and_then(Vital::operator));
    let reasons = lockout::starved(next, in_force, &Outlook::new(lists, &[]), &vital);
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
    lists: &Outlook<'_>,
    lookout: &mut Lookout,
    changer: &ListChanger<'_>,
) -> Result<(), Failure> {
    if changer.operator.force {
        return Ok(());
    }
    // Whoever gives the order is known from the order.
    let operator = changer.operator.origin.and_then(Vital::operator);
    let vital = operator.iter().chain(lookout.vital(Instant::now(), look)?);
    let cut = lockout::cut_off(prefix, lists, changer.now_ns, vital);
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

/// Everybody who must not be cut off as of now, but for whoever gives an order, and the CPU time that it took to look.
pub(super) fn look() -> Result<(Vec<Vital>, Duration), Failure> {
    let begun = cpu_time();
    let unknown = |reason: String| {
        let message =
            format!("cannot tell who would be cut off: {reason}; --force goes ahead without looking");
        Failure::new(ExitCode::Unsupported, message)
    };
    let own = address::list().map_err(|error| unknown(error.to_string()))?;
    let vital =
        lockout::discover(Path::new("/proc"), own).map_err(|error| unknown(format!("/proc/net: {error}")))?;
    Ok((vital, cpu_time().saturating_sub(begun)))
}

/// CPU time of this thread: a host that is busy with other things makes a look late, and not dear.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
