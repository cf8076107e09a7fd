//! Refusing what would cut somebody off who must not be: the operator, and whoever keeps this host running.

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

/// Reasons named in a refusal.
const SHOWN: usize = 5;

/// Refuses a policy that would cut somebody off who gets through under the one in force.
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

/// Complains of a policy that would have been refused, had somebody been there to say `--force`.
pub(in crate::daemon) fn complain_of_policy(next: &Policy, in_force: &Policy, lists: &Lists, why: &str) {
    if let Err(failure) = refuse_policy(next, in_force, lists, &Operator::default()) {
        log::warning(format!("not refused, because {why}: {failure}"));
    }
}

/// Refuses lists with which somebody inside `prefix` would be cut off; nobody else can be by what is said of that prefix.
pub(in crate::daemon) fn refuse_lists(
    prefix: &Prefix,
    before: PacketRules<'_>,
    after: PacketRules<'_>,
    lookout: &mut Lookout,
    changer: &ListChanger<'_>,
) -> Result<(), Failure> {
    // On trial nobody is dropped, and nobody has to be searched for.
    if changer.operator.force || after.policy.mode() == Mode::Monitor {
        return Ok(());
    }
    // The operator who gives the order is known from the order.
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
        "refused, somebody would be cut off: {}{more}; have what must stay on the allow list, or use --force on the command line",
        reasons.join("; ")
    )))
}

/// Ports of SSH servers that were found by who may look into other processes: this one before it gave that up, and commands of operators since. There is one
/// host, and one of this.
static SSH_PORTS: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Learns where SSH servers are. Whoever has found none may not have been allowed to look.
pub(in crate::daemon) fn learn_ssh_ports(found: &BTreeSet<u16>) {
    if !found.is_empty() {
        SSH_PORTS.lock().unwrap_or_else(PoisonError::into_inner).clone_from(found);
    }
}

/// All addresses that must not be cut off now, but for that of the operator who gives an order, and the CPU time that the look took.
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

/// CPU time of this thread: a host that is busy with other things makes a look late, and not dear.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
