//! Finds what hinders protection on a host, and what to do about it. Only reads, never changes anything.
//!
//! ```text
//! sysfs, procfs, netlink, store, daemon -> Readings -> examine -> findings
//! ```
//!
//! [`examine`] is pure: everything that was read is an argument. A value that could not be read is a reading with the reason.

mod attendance;
mod finding;
mod host;
mod link;
mod native;
mod reader;
mod readings;
mod store;
#[cfg(test)]
mod tests;

pub use self::{
    finding::{Grade, HostFinding},
    reader::{Whereabouts, read},
    readings::Readings,
};

/// All checks, in the order of the answer: the host, each interface, the store, the daemon.
pub fn examine(readings: &Readings) -> Vec<HostFinding> {
    let mut findings = host::examine(&readings.host, &readings.wishes);
    for link in &readings.links {
        findings.extend(link::examine(link, &readings.host, &readings.wishes));
    }
    findings.extend(store::examine(readings.store.as_ref(), &readings.wishes));
    findings.extend(attendance::examine(&readings.attendance));
    findings
}
