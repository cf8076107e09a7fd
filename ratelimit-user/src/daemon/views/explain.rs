//! Explains on the running host why packets of an address pass or are refused.

use std::net::IpAddr;

use ratelimit_common::abi::{self, service::KNOWN_PARTS};

use crate::{
    clock,
    control::protocol::Reply,
    daemon::{
        host::Host, in_force::enforcer::EnforcedPolicy, orders::clients::ClientNames, traffic::drops::Drops,
    },
    dataplane::probe,
    drops::Sighting,
    explain::{self, ClientPrecedence, ExplainContext, LastDrop},
    failure::{ExitCode, Failure},
    policy::{Policy, Service},
};

/// Reads the entries about an address from the kernel, and returns the explanation.
pub(in crate::daemon) fn explain(
    host: &Host,
    address: IpAddr,
    service: Option<&str>,
) -> Result<Reply, Failure> {
    let policy = host.policy();
    require_service(policy, service)?;
    let kernel = host.enforced.maps.policy().ok_or_else(|| {
        Failure::new(ExitCode::Unsupported, "the kernel has no policy; apply one, or start the daemon again")
    })?;
    let setting = setting(host, &kernel);
    let mut explanation = explain::explain(&host.enforced.maps, &setting, address, service)?;
    explanation.known = precedence(host, address, service)?;
    explanation.last_drops = last_drops(policy, &host.drops, address.to_canonical());
    Ok(Reply::Explanation(Box::new(explanation)))
}

/// Returns the context for an explanation: the policy, names and lists in force, and the policy in the kernel.
pub(in crate::daemon) fn setting<'h>(host: &'h Host, kernel: &'h abi::Policy) -> ExplainContext<'h> {
    let EnforcedPolicy { desired, facts, .. } = &host.enforced;
    ExplainContext {
        policy: host.policy(),
        kernel,
        names: &desired.names,
        lists: &host.lists.lists,
        reserve: facts.reserve,
        now_ns: probe::now_by(kernel.clock()),
        unix_seconds: clock::since_1970().as_secs(),
    }
}

/// Returns what an address may have while a total is spent: at all services that have a total or are below that of the host, or at the named one.
fn precedence(host: &Host, address: IpAddr, service: Option<&str>) -> Result<Vec<ClientPrecedence>, Failure> {
    let policy = host.policy();
    let has_host_total = !policy.host().totals().is_empty();
    let of_service = |one: &Service| {
        let has_own = !one.totals().is_empty();
        let parts = if has_own { one.known_parts() } else { KNOWN_PARTS };
        let is_remembering = one.remembers_clients() && (has_own || has_host_total);
        is_remembering.then(|| (Some(one.name().to_owned()), parts))
    };
    let services = policy.services().iter().filter_map(of_service);
    let all = services.chain(has_host_total.then_some((None, KNOWN_PARTS)));
    let names = ClientNames::of(&host.enforced.desired);
    let remembered = names.remembered(&host.clients(), address)?;
    let at_service = |(name, parts): (Option<String>, u64)| {
        let found = remembered.iter().find(|one| one.service == name);
        let client = found.map(|one| one.client.clone());
        ClientPrecedence { service: name, newcomers: format!("1/{}", parts + 1), client }
    };
    let asked =
        |(name, _): &(Option<String>, u64)| service.is_none_or(|asked| name.as_deref() == Some(asked));
    Ok(all.filter(asked).map(at_service).collect())
}

fn last_drops(policy: &Policy, drops: &Drops, address: IpAddr) -> Vec<LastDrop> {
    let source = policy.source().around(address);
    let now_ns = probe::now_ns();
    let drop = |sighting: &Sighting| LastDrop {
        ms_ago: now_ns.saturating_sub(sighting.time_ns) / 1_000_000,
        packet: sighting.dropped(),
    };
    drops.recent.of(&source).map(drop).collect()
}

fn require_service(policy: &Policy, name: Option<&str>) -> Result<(), Failure> {
    let known = || policy.services().iter().map(Service::name);
    match name {
        Some(name) if !known().any(|one| one == name) => {
            let there = known().collect::<Vec<_>>().join(", ");
            let there = if there.is_empty() { "the policy has none" } else { &format!("there is {there}") };
            Err(Failure::usage(format!("no service is called {name:?}; {there}")))
        }
        _ => Ok(()),
    }
}
