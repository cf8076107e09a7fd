//! Reads the host for [`super::examine`]: one file for each part.

mod attendance;
mod host;
mod link;
mod store;

use std::path::PathBuf;

use super::readings::{Attendance, Readings, Wishes};
use crate::{
    dataplane::{interface, pin::PinDir},
    failure::Failure,
    policy::Policy,
};

/// What to read.
#[derive(Clone, Debug)]
pub struct Whereabouts {
    /// The interfaces that were named; if none, those of the policy, or those that are guarded, or those with a default route.
    pub interfaces: Vec<String>,
    /// The policy that is or will be in force.
    pub policy: Option<Policy>,
    /// State directory of the daemon.
    pub state: PathBuf,
    /// The directory of pinned links.
    pub pin: PathBuf,
    /// The process file system.
    pub proc: PathBuf,
}

/// Reads everything that may be read. Fails if a named interface does not exist.
pub fn read(place: &Whereabouts) -> Result<Readings, Failure> {
    let wishes = place.policy.as_ref().map(wishes).unwrap_or_default();
    let attendance = attendance::read(&place.state, &place.pin);
    let daemon = match &attendance {
        Attendance::Daemon(Ok(daemon)) => Some(daemon.pid),
        _ => None,
    };
    let host = host::read(place, daemon);
    let all = interface::list()?;
    let pins = PinDir::new(&place.pin);
    let mut links = Vec::new();
    for name in names(place, &pins) {
        links.push(link::read(interface::among(&all, &name)?, &all, &pins));
    }
    let address = place.policy.as_ref().and_then(Policy::cluster).map(|cluster| cluster.redis().clone());
    let store = address.as_ref().map(store::read);
    Ok(Readings { wishes, host, links, store, attendance })
}

fn names(place: &Whereabouts, pins: &PinDir) -> Vec<String> {
    if !place.interfaces.is_empty() {
        return place.interfaces.clone();
    }
    let of_policy = place.policy.iter().flat_map(Policy::interfaces).map(ToString::to_string);
    let mut names: Vec<String> = of_policy.collect();
    if names.is_empty() {
        names = pins.linked_interfaces().unwrap_or_default();
    }
    if names.is_empty() {
        names = link::with_default_route(&place.proc);
    }
    names
}

fn wishes(policy: &Policy) -> Wishes {
    let services = policy.services();
    let cookies = services.iter().any(|service| service.syn_cookies().is_some());
    let answers = services.iter().any(|service| service.answers().next().is_some());
    let listen = policy.listen();
    Wishes {
        cookies,
        answers,
        listens: [&listen.http, &listen.grpc, &listen.resp].iter().any(|endpoints| !endpoints.is_empty()),
        elastic: policy.is_elastic(),
        counts_for_long: policy.counts_for_long_in_store(),
    }
}
