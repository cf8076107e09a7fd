//! Makes the status of the running host.

use std::time::Instant;

use ratelimit_common::abi::{ABI_VERSION, Mode, OnLimit};

use crate::{
    build::BUILD,
    control::protocol::{self, ClusterStatus, InterfaceStatus, LaneStatus, Status, StatusWarning},
    daemon::{
        conditions::express_lane,
        host::Host,
        in_force::Unread,
        state::{entries, version::PolicyVersion},
        views::known_totals,
    },
    dataplane::probe,
    policy::Policy,
    stats::known_packets::KnownPackets,
};

/// Returns the status. The caller has to fill in the numbers of the table.
pub(in crate::daemon) fn status(host: &Host) -> Status {
    let now_ns = probe::now_ns();
    let interfaces = host.interfaces.with(|interfaces| interfaces.statuses());
    let cluster = host.cluster.as_ref().map(|cluster| cluster.status(Instant::now(), now_ns));
    let warned = warned(host);
    let warnings = warned.iter().map(|warning| warning.sentence.clone()).collect();
    let elsewhere =
        [not_native(&interfaces), StatusWarning::of("store", cluster.iter().flat_map(store_warnings))];
    let warning_details = [warned, elsewhere.concat()].concat();
    Status {
        build: BUILD.to_owned(),
        abi: ABI_VERSION,
        pid: std::process::id(),
        mode: host.policy().mode().name().to_owned(),
        services_on_trial: on_trial(host.policy()),
        protected: protocol::all_protected(&interfaces),
        uptime_seconds: host.started.elapsed().as_secs(),
        kernel: host.conditions.release.clone(),
        interfaces,
        policy: host.in_force.version.file().display().to_string(),
        policy_generation: host.enforced.desired.policy.generation,
        policy_changed: host.in_force.version.is_changed(),
        policy_after_restart: host.in_force.after_restart(),
        policy_before: host.in_force.previous.as_ref().map(PolicyVersion::describe),
        unconfirmed: host.in_force.unconfirmed(Instant::now()),
        table_entries: 0,
        table_capacity: 0,
        tracked_cells: 0,
        known_clients: 0,
        known_packets_per_second: 0,
        known_packets: KnownPackets::default(),
        known_tightest: known_totals::tightest(host),
        promotions: 0,
        promotions_per_second: host.attack.last_second.promoted,
        prefix_promotions: 0,
        drop_reports_lost: 0,
        evictions: 0,
        attack_state: host.attack.watch.attack_state().name().to_owned(),
        attack_state_changes: host.attack.watch.changes(),
        attacks: host.attacks.status(),
        headroom: host.headroom.status(Instant::now()),
        express_lane: lane(host, now_ns),
        blocked_prefixes: entries::blocked(&host.lists.lists, now_ns).count() as u64,
        allowed_prefixes: entries::allows(&host.lists.lists).count() as u64,
        lists_kept_in: host.lists.keeper.journal.path().display().to_string(),
        requests: host.requests.status(),
        cluster,
        pin: host.interfaces.with(|interfaces| interfaces.pins.root().display().to_string()),
        warnings,
        warning_details,
    }
}

/// Returns the status of the express lane, if it can be read from the kernel.
fn lane(host: &Host, now_ns: u64) -> Option<LaneStatus> {
    let opens_ns = host.enforced.maps.lane_opens_ns().ok()?;
    Some(express_lane::status(&host.enforced.desired.policy, opens_ns, now_ns))
}

/// Returns warnings about what does not work as the policy wants it.
fn warned(host: &Host) -> Vec<StatusWarning> {
    let (silence, unpinned) =
        host.interfaces.with(|interfaces| (interfaces.silence(host.policy()), interfaces.unpinned()));
    [
        trials(host.policy()),
        StatusWarning::of("policy_not_read", host.in_force.unread.iter().map(Unread::warning)),
        StatusWarning::of("host_settings", host.warnings()),
        StatusWarning::of("nobody_answered", silence),
        StatusWarning::of("listeners", host.requests.warnings()),
        StatusWarning::of("lists_not_on_disk", host.lists.not_on_disk()),
        StatusWarning::of("known_clients", host.client_keeper.warnings()),
        StatusWarning::of("known_clients", known_totals::warnings(host)),
        StatusWarning::of("pins_gone", unpinned),
        StatusWarning::of("attack_reports_not_on_disk", host.attacks.not_on_disk()),
        StatusWarning::of("notify", host.attacks.untold()),
        StatusWarning::of("sampling", host.traffic.problem().as_deref().map(unsampled)),
    ]
    .concat()
}

/// Returns the sentence that frames cannot be sampled, and why.
fn unsampled(problem: &str) -> String {
    format!(
        "frames cannot be sampled, so that top and attack reports have no sources, and watch no packets; it is tried again while one of them runs: {problem}"
    )
}

/// Returns warnings about interfaces on which the program is slow or gone. The text of `status` shows these in the lines of the interfaces.
fn not_native(interfaces: &[InterfaceStatus]) -> Vec<StatusWarning> {
    let sentence = |interface: &InterfaceStatus| {
        let note = interface.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
        format!("{} is {}{note}", interface.name, interface.mode)
    };
    let of = |kind, is_it: &dyn Fn(&InterfaceStatus) -> bool| {
        StatusWarning::of(kind, interfaces.iter().filter(|one| is_it(one)).map(sentence))
    };
    [of("not_protected", &|one| !one.is_protected()), of("generic_mode", &|one| one.mode == "generic")]
        .concat()
}

/// Returns why the store does not answer, and the warnings of the cluster.
fn store_warnings(cluster: &ClusterStatus) -> Vec<String> {
    cluster.problem.iter().chain(&cluster.warnings).cloned().collect()
}

/// Returns warnings about a policy or services on trial, so that nobody takes them for protection.
fn trials(policy: &Policy) -> Vec<StatusWarning> {
    if policy.mode() == Mode::Monitor {
        let sentence =
            "mode = \"monitor\": NOTHING IS DROPPED, only counted; stats shows what would have been";
        return StatusWarning::of("monitor", [sentence.to_owned()]);
    }
    let sentence = |name: String| format!("service {name} is on trial: its limits drop nothing");
    StatusWarning::of("service_on_trial", on_trial(policy).into_iter().map(sentence))
}

/// Returns the services whose limits drop nothing.
fn on_trial(policy: &Policy) -> Vec<String> {
    let on_trial = policy.services().iter().filter(|service| service.on_limit() == OnLimit::Monitor);
    on_trial.map(|service| service.name().to_owned()).collect()
}
