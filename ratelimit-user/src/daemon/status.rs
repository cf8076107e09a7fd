//! How the running host is.

use std::time::Instant;

use ratelimit_common::abi::{self, Mode, OnLimit};

use super::{host::Host, version::Version};
use crate::{
    build::BUILD,
    control::protocol::{self, InterfaceStatus, Status, Unconfirmed},
    dataplane::{
        attach::{self, Guarded, Presence},
        framing::Framing,
        pin::PinDir,
        probe,
    },
    policy::changes::changes,
};

impl Host {
    /// The status, with the table still to be filled in by whoever reads it.
    pub(super) fn status(&self) -> Status {
        let now_ns = probe::now_ns();
        let interfaces = self.interfaces();
        Status {
            version: BUILD.to_owned(),
            abi: abi::ABI_VERSION,
            pid: std::process::id(),
            mode: self.policy().mode().name().to_owned(),
            services_on_trial: self.on_trial(),
            protected: protocol::all_protected(&interfaces),
            uptime_seconds: self.started.elapsed().as_secs(),
            kernel: self.release.clone(),
            interfaces,
            policy: self.version.file().display().to_string(),
            policy_generation: self.desired.policy.generation,
            policy_changed: self.version.is_changed(),
            policy_after_restart: self.after_restart(),
            policy_before: self.previous.as_ref().map(Version::describe),
            unconfirmed: self.unconfirmed(Instant::now()),
            table_entries: 0,
            table_capacity: 0,
            hot_cells: 0,
            promotions: 0,
            promotions_per_second: self.last_second.promoted,
            prefix_promotions: 0,
            drop_reports_lost: 0,
            evictions: 0,
            posture: self.watch.posture().name().to_owned(),
            posture_changes: self.watch.changes(),
            headroom: self.headroom.status(Instant::now()),
            blocked_prefixes: self.blocked(now_ns).count() as u64,
            allowed_prefixes: self.allows().count() as u64,
            lists_kept_in: self.keeper.journal.path().display().to_string(),
            requests: self.decisions.status(),
            cluster: self.cluster.as_ref().map(|cluster| cluster.status(Instant::now(), now_ns)),
            pin: self.pins.root().display().to_string(),
            warnings: [
                self.trials(),
                self.unread(),
                self.host_warnings(),
                self.silence(),
                self.decisions.warnings(),
                self.not_on_disk(),
                self.unpinned(),
            ]
            .concat(),
        }
    }

    /// What is really on each guarded interface.
    pub(super) fn interfaces(&self) -> Vec<InterfaceStatus> {
        self.guarded.iter().map(|one| interface_status(&self.pins, one)).collect()
    }

    fn unconfirmed(&self, now: Instant) -> Option<Unconfirmed> {
        let waiting = self.waiting.as_ref()?;
        Some(Unconfirmed {
            seconds_left: waiting.seconds_left(now),
            back_to: waiting.before.describe(),
            changes: changes(waiting.before.policy(), self.version.policy()),
        })
    }

    /// What is on trial, so that nobody takes it for protection.
    fn trials(&self) -> Vec<String> {
        let policy = self.policy();
        if policy.mode() == Mode::Monitor {
            return vec![
                "mode = \"monitor\": NOTHING IS DROPPED, only counted; stats shows what would have been"
                    .to_owned(),
            ];
        }
        let on_trial = self.on_trial();
        on_trial.iter().map(|name| format!("service {name} is on trial: its limits drop nothing")).collect()
    }

    /// That the policy file says something else than what is in force, and what is wrong with it.
    fn unread(&self) -> Vec<String> {
        let say = |why: &String| {
            format!("SIGHUP did not read the policy file, the policy before stays in force: {why}")
        };
        self.unread.iter().map(say).collect()
    }

    /// Services whose limits drop nothing.
    fn on_trial(&self) -> Vec<String> {
        let services = self.policy().services().iter();
        let on_trial = services.filter(|service| service.on_limit() == OnLimit::Monitor);
        on_trial.map(|service| service.name().to_owned()).collect()
    }

    /// Changes of the lists that a restart or a reboot would lose.
    fn not_on_disk(&self) -> Vec<String> {
        let problem = self.keeper.journal.problem();
        problem
            .map(|why| format!("changes of the block and allow lists are NOT ON DISK: {why}"))
            .into_iter()
            .collect()
    }

    /// Where nobody is answered although the policy says so.
    pub(super) fn silence(&self) -> Vec<String> {
        let services = self.policy().services();
        let cookies = services.iter().any(|service| service.syn_cookies().is_some());
        let rejections = services.iter().any(|service| service.on_limit() == OnLimit::Reject);
        let mut answers = Vec::new();
        answers.extend(cookies.then_some("SYN cookies"));
        answers.extend(rejections.then_some("on_limit = \"reject\""));
        if answers.is_empty() {
            return Vec::new();
        }
        let answers = answers.join(" and ");
        let silent = |one: &Guarded| {
            let name = &one.interface;
            let why = match one.framing {
                Framing::Ip => "its frames are IP packets".to_owned(),
                Framing::Ethernet if one.tags_lost => format!(
                    "its driver keeps VLAN tags apart from packets, and answers would go out without; ethtool -K {name} \
                     rxvlan off cures that"
                ),
                Framing::Ethernet => return None,
            };
            Some(format!(
                "{name}: no packet is answered here ({answers}), because {why}; limits hold, refused packets are dropped"
            ))
        };
        self.guarded.iter().filter_map(silent).collect()
    }
}

fn interface_status(pins: &PinDir, guarded: &Guarded) -> InterfaceStatus {
    let (mode, note) = match attach::presence(pins, &guarded.interface) {
        Ok(presence @ Presence::Ours(_)) => {
            let reason = guarded.not_native.as_ref();
            (presence.words().0, reason.map(|reason| format!("native mode is not possible: {reason}")))
        }
        Ok(presence) => (presence.words().0, presence.words().1.map(ToOwned::to_owned)),
        Err(error) => ("detached", Some(error.to_string())),
    };
    let link = guarded.framing.name().to_owned();
    InterfaceStatus { name: guarded.interface.clone(), mode: mode.to_owned(), link, note }
}
