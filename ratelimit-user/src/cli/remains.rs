//! What `status` and `stats` say when no daemon answers: what its pins still enforce.

use std::path::{Path, PathBuf};

use clap::Args;
use ratelimit_common::abi::{self, Limit, Meter, Mode, list};
use serde::Serialize;

use super::{DEFAULT_PIN, interface_line::interface_line};
use crate::{
    compile::Places,
    control::{
        client::{daemon_is_absent, nobody_answers, somebody_runs},
        protocol::{InterfaceStatus, StatusWarning, all_protected},
    },
    dataplane::{
        pin::PinDir,
        probe,
        remains::{self, Linked, Remains},
    },
    failure::Failure,
    stats::Snapshot,
};

/// What `daemon` is where none answers.
const NOT_ANSWERING: &str = "not answering";

/// Whether a daemon runs that does not answer at its state directory.
pub(super) fn absence(state: &Path) -> &'static str {
    if somebody_runs(state) { NOT_ANSWERING } else { "not running" }
}

/// Where a daemon that is gone has left its work.
#[derive(Clone, Debug, Args)]
pub(super) struct Pins {
    /// Pin directory, read when no daemon runs
    #[arg(long, value_name = "DIR", default_value = DEFAULT_PIN)]
    pin: PathBuf,
}

impl Pins {
    /// The pins, if nobody answers at this state directory and there are some that may be read. A daemon that is busy is not
    /// gone: who asks is told so by whoever asks it.
    pub(super) fn without_daemon(&self, state: &Path) -> Option<PinDir> {
        let readable = daemon_is_absent(state)
            && probe::require_rights("reading pins").is_ok()
            && self.pin.exists()
            && probe::require_bpffs(&self.pin).is_ok();
        let pins = PinDir::new(&self.pin);
        let has_links = readable && pins.linked_interfaces().is_ok_and(|names| !names.is_empty());
        has_links.then_some(pins)
    }
}

/// The JSON form, in the words of a daemon's own status as far as they are known. Fields are added, never renamed.
#[derive(Debug, Serialize)]
pub(super) struct RemainsStatus {
    /// `not running`, or `not answering` if somebody runs with the state directory; absent from the status of a daemon.
    daemon: &'static str,
    protected: bool,
    interfaces: Vec<InterfaceStatus>,
    /// Absent, as everything that follows, if the maps are of another version.
    mode: Option<&'static str>,
    policy_generation: Option<u64>,
    /// What every source is held to, about.
    source_limits: Vec<String>,
    services: Option<u32>,
    users: Option<u32>,
    blocked_prefixes: Option<usize>,
    allowed_prefixes: Option<usize>,
    table_capacity: Option<u32>,
    pin: String,
    warnings: Vec<String>,
    warning_details: Vec<StatusWarning>,
}

impl RemainsStatus {
    /// Reads what the pin directory and the state directory still have.
    pub(super) fn read(pins: &PinDir, state: &Path) -> Result<Self, Failure> {
        let interfaces: Vec<InterfaceStatus> = remains::linked(pins)?.into_iter().map(interface).collect();
        let remains = Remains::find(pins)?;
        let policy = remains.as_ref().map(Remains::policy).transpose()?.flatten();
        let lists = remains.as_ref().map(Remains::lists).transpose()?;
        let now_ns = probe::now_ns();
        let warning = |kind: &str, sentence: String| StatusWarning { kind: kind.to_owned(), sentence };
        let unattended = match absence(state) {
            NOT_ANSWERING => "",
            _ => "; nothing looks after what is enforced, and questions about requests are not answered",
        };
        let nobody = format!("{}{unattended}", nobody_answers(state));
        let mut details = vec![warning("no_daemon", nobody)];
        if remains.is_none() {
            let sentence = "the maps are of another version of ratelimit, and cannot be read";
            details.push(warning("other_layout", sentence.to_owned()));
        }
        if policy.as_ref().is_some_and(|policy| policy.mode == Mode::Monitor as u32) {
            details
                .push(warning("monitor", "mode = \"monitor\": NOTHING IS DROPPED, only counted".to_owned()));
        }
        let on_list = |is_on: &dyn Fn(&abi::ListEntry) -> bool| {
            lists.as_ref().map(|lists| lists.iter().filter(|(_, entry)| is_on(entry)).count())
        };
        Ok(Self {
            daemon: absence(state),
            protected: all_protected(&interfaces),
            interfaces,
            mode: policy.as_ref().map(|policy| mode(policy)),
            policy_generation: policy.as_ref().map(|policy| policy.generation),
            source_limits: policy.as_ref().map(|policy| source_limits(policy)).unwrap_or_default(),
            services: policy.as_ref().map(|policy| policy.service_count),
            users: policy.as_ref().map(|policy| policy.user_count),
            blocked_prefixes: on_list(&|entry| entry.own_blocked_until_ns > now_ns),
            allowed_prefixes: on_list(&|entry| entry.own_allowed == list::ALLOWED),
            table_capacity: remains.as_ref().map(Remains::table_capacity),
            pin: pins.root().display().to_string(),
            warnings: details.iter().map(|warning| warning.sentence.clone()).collect(),
            warning_details: details,
        })
    }

    /// Whether our program runs on every interface that has a link.
    pub(super) fn is_protected(&self) -> bool {
        self.protected
    }

    /// The remains as text for people.
    pub(super) fn text(&self) -> String {
        let mut text = match self.daemon {
            NOT_ANSWERING => {
                "NO ANSWER  a daemon runs and has no socket; this is what its pins enforce\n".to_owned()
            }
            _ => "NO DAEMON  this is what its pins still enforce\n".to_owned(),
        };
        self.interfaces.iter().for_each(|interface| text.push_str(&interface_line(interface)));
        if let (Some(generation), Some(mode)) = (self.policy_generation, self.mode) {
            let limits = match self.source_limits.as_slice() {
                [] => "in windows only".to_owned(),
                limits => limits.join(", "),
            };
            text.push_str(&format!(
                "policy     generation {generation}, mode {mode}: {} services, {} users\n           every source: {limits}\n",
                self.services.unwrap_or_default(),
                self.users.unwrap_or_default()
            ));
        }
        if let (Some(blocked), Some(allowed)) = (self.blocked_prefixes, self.allowed_prefixes) {
            text.push_str(&format!("lists      {blocked} blocked, {allowed} allowed\n"));
        }
        text.push_str(&format!("pins       {}\n", self.pin));
        for warning in &self.warnings {
            text.push_str(&format!("WARNING    {warning}\n"));
        }
        text
    }
}

/// The counters. Names of services went with the daemon: what was counted for them is in the sums only.
pub(super) fn snapshot(pins: &PinDir) -> Result<Option<Snapshot>, Failure> {
    let Some(remains) = Remains::find(pins)? else { return Ok(None) };
    let known = remains.known_packets()?;
    Ok(Some(Snapshot { known, ..Snapshot::new(&remains.counts()?, &Places::default()) }))
}

fn interface(linked: Linked) -> InterfaceStatus {
    let (mode, note) = linked.presence.words();
    InterfaceStatus {
        name: linked.name,
        mode: mode.to_owned(),
        link: linked.framing.name().to_owned(),
        note: note.map(|note| format!("{note}, or out of sight: in another network namespace")),
    }
}

fn mode(policy: &abi::Policy) -> &'static str {
    if policy.mode == Mode::Monitor as u32 { Mode::Monitor.name() } else { Mode::Enforce.name() }
}

/// The rates of buckets; what is counted in windows has none.
fn source_limits(policy: &abi::Policy) -> Vec<String> {
    let set = &policy.source.set;
    set.limits.iter().take(set.limit_count as usize).filter_map(rate).collect()
}

/// A limit as a rate, rounded: a time for each unit is all that the kernel keeps of it.
fn rate(limit: &Limit) -> Option<String> {
    let meter = Meter::ALL.into_iter().find(|meter| *meter as u32 == limit.meter)?;
    let places = limit.frac_bits & 0xff;
    let q8_per_second = 256_000_000_000_u128 << places;
    let per = |seconds: u128| (q8_per_second * seconds).checked_div(u128::from(limit.cost_fp));
    let (amount, period) = match per(1)? {
        0 => (per(86_400)?, "day"),
        amount => (amount, "s"),
    };
    Some(format!("about {amount} {}/{period}", meter.name()))
}

#[cfg(test)]
mod tests {
    use ratelimit_common::limit::text::parse_limit;

    use super::*;

    #[test]
    fn a_limit_in_the_kernel_is_told_as_the_rate_that_it_came_from() {
        for (typed, told) in [
            ("5000 packets/s burst 10000", "about 5000 packets/s"),
            ("100 syns/s", "about 100 syns/s"),
            ("40 Mbit/s", "about 5000000 bytes/s"),
            ("500 packets/hour", "about 12000 packets/day"),
        ] {
            let (_, limit) = parse_limit(typed).unwrap();
            assert_eq!(rate(&limit).as_deref(), Some(told), "{typed}");
        }
        assert_eq!(rate(&Limit::UNUSED), None);
    }
}
