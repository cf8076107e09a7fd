//! Refuses changes that would cut off an address that must not be cut off: the operator's, or one that keeps this host running.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use ratelimit_common::abi::policy::Mode;

use super::{ListChanger, lookout::Lookout};
use crate::{
    compile::lists::{Lists, Outlook, Prefix},
    control::protocol::Operator,
    dataplane::{address, probe},
    failure::{ExitCode, Failure},
    lockout::{self, CutOff, PacketRules, Vital},
    log,
    policy::Policy,
};

/// The largest number of reasons that a refusal names.
const SHOWN: usize = 5;

/// Refuses a policy that would cut off somebody who gets through under the policy in force.
pub(in crate::daemon) fn refuse_policy(
    next: &Policy,
    in_force: &Policy,
    lists: &Lists,
    operator: &Operator,
) -> Result<(), Failure> {
    if operator.force || !lockout::could_cut_off(in_force, next, lists) {
        return Ok(());
    }
    let (mut vital, _) = look()?;
    vital.extend(operator.origin.and_then(Vital::operator));
    let lists = &Outlook::new(lists, &[]);
    let (before, after) = (PacketRules { policy: in_force, lists }, PacketRules { policy: next, lists });
    refuse(&lockout::cut_off(before, after, probe::now_ns(), &vital))
}

/// Logs a warning about a policy that an order without `--force` could not have put in force.
pub(in crate::daemon) fn complain_of_policy(next: &Policy, in_force: &Policy, lists: &Lists, why: &str) {
    if let Err(failure) = refuse_policy(next, in_force, lists, &Operator::default()) {
        log::warning(format!("not refused, because {why}: {failure}"));
    }
}

/// Refuses lists that would cut off an address inside `prefix`. A change of this prefix can cut off no other address.
pub(in crate::daemon) fn refuse_lists(
    prefix: &Prefix,
    before: PacketRules<'_>,
    after: PacketRules<'_>,
    lookout: &mut Lookout,
    changer: &ListChanger<'_>,
) -> Result<(), Failure> {
    // A policy on trial drops nothing, so the host need not be searched.
    if changer.operator.force || after.policy.mode() == Mode::Monitor {
        return Ok(());
    }
    // The address of the operator comes with the order.
    let operator = changer.operator.origin.and_then(Vital::operator);
    let vital = operator.iter().chain(lookout.vital(Instant::now(), look)?);
    refuse(&lockout::cut_off(before, after, changer.now_ns, lockout::inside(prefix, vital)))
}

fn refuse(cut: &[CutOff<'_>]) -> Result<(), Failure> {
    if cut.is_empty() {
        return Ok(());
    }
    let reasons: Vec<String> = cut.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = cut.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(Failure::usage(format!(
        "refused, somebody would be cut off: {}{more}; put what must stay connected on the allow list, or use --force on the command line",
        reasons.join("; ")
    )))
}

/// Ports of SSH servers, found by processes that may read open files of others: this one before it gave up that right, and commands of operators since. The
/// value is global, because there is one host.
static SSH_PORTS: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Takes over the ports of SSH servers. An empty set is ignored, because its finder may not have had the right to look.
pub(in crate::daemon) fn learn_ssh_ports(found: &BTreeSet<u16>) {
    if !found.is_empty() {
        SSH_PORTS.lock().unwrap_or_else(PoisonError::into_inner).clone_from(found);
    }
}

/// Returns all addresses that must not be cut off now, except that of the operator who gives an order, and the CPU time that the look took.
pub(in crate::daemon) fn look() -> Result<(Vec<Vital>, Duration), Failure> {
    let begun = cpu_time();
    let unknown = |reason: String| {
        let message =
            format!("cannot tell who would be cut off: {reason}; --force goes ahead without looking");
        Failure::new(ExitCode::Unsupported, message)
    };
    let own = address::list().map_err(|error| unknown(error.to_string()))?;
    let ssh_ports = SSH_PORTS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let vital = lockout::discover(Path::new("/proc"), own, &ssh_ports)
        .map_err(|error| unknown(format!("/proc/net: {error}")))?;
    Ok((vital, cpu_time().saturating_sub(begun)))
}

/// Returns the CPU time of this thread. Unlike real time it does not grow when a busy host delays a look.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
