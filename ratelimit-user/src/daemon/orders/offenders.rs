//! Blocks callers that stay above their limits, if the policy says so.

use super::list_orders::BlockScope;
use crate::{
    compile::lists::{self, Prefix},
    control::protocol::Operator,
    daemon::{host::Host, lists::ListChanger, state::entries},
    dataplane::probe,
    failure::{ExitCode, Failure},
    log,
    requests::escalation::Offence,
};

/// Blocks a caller that stays above its limits, or logs why not.
pub(in crate::daemon) fn follow_offence(host: &mut Host, offence: &Offence) {
    if let Err(failure) = escalate(host, offence) {
        log::warning(format!("{} ({}) is not blocked: {failure}", offence.prefix, offence.reason));
    }
}

/// Blocks an address that was refused too often for too long, on all hosts if this one is in a cluster. An address that is blocked for longer already
/// keeps that block, because a second block of a prefix would replace the first and end earlier.
fn escalate(host: &mut Host, offence: &Offence) -> Result<(), Failure> {
    let found = |why: String| Failure::new(ExitCode::Found, why);
    if let Some(allowed) = entries::allows(&host.lists.lists).find(|allowed| meets(allowed, &offence.prefix))
    {
        return Err(found(format!("{allowed} is on the allow list")));
    }
    let trusted = &host.policy().listen().trusted_proxies;
    if let Some(proxy) = trusted.iter().find(|proxy| meets(proxy, &offence.prefix)) {
        return Err(found(format!("{proxy} is a trusted proxy: it asks for others")));
    }
    let now_ns = probe::now_ns();
    let until_ns = now_ns.saturating_add(offence.for_ns);
    if let Some((blocked, _)) = lists::around(&host.lists.lists, &offence.prefix)
        .find(|(_, entry)| entry.own_blocked_until_ns >= until_ns)
    {
        log::info(format!(
            "{} ({}): {blocked} is blocked for longer already, and stays so",
            offence.prefix, offence.reason
        ));
        return Ok(());
    }
    let scope = BlockScope::of(host.cluster.is_some());
    let prefix = offence.prefix.to_string();
    let (for_ns, reason) = (Some(offence.for_ns), short(&offence.reason));
    let changer = ListChanger { operator: &Operator::default(), by: &"escalate", now_ns };
    host.list_editor().block(&prefix, for_ns, Some(&reason), scope, &changer)?;
    host.attacks.note(&format!("escalate blocked {prefix}: {reason}"));
    Ok(())
}

fn meets(one: &Prefix, other: &Prefix) -> bool {
    one.covers(other) || other.covers(one)
}

/// Cuts a reason to the bytes that a block has room for.
fn short(reason: &str) -> String {
    let mut text = String::new();
    for c in reason.chars() {
        if text.len() + c.len_utf8() > ratelimit_common::abi::list::REASON_LEN {
            break;
        }
        text.push(c);
    }
    text
}
