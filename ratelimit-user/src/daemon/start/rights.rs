//! Gives up the rights that root has and the daemon does not use, before the daemon does anything else. Neither the daemon nor processes that it starts can
//! get them again.

use std::{io, path::Path};

use rustix::{
    process::{Resource, Rlimit, setrlimit},
    thread::{
        CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
        remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
    },
};

use crate::{
    daemon::lists::vital::learn_ssh_ports,
    dataplane::{inner_maps, pin::PinDir, pinned_link},
    failure::{ExitCode, Failure},
    lockout,
    serve::descriptors,
};

/// The capabilities that the daemon keeps, and what for.
const KEPT: [(CapabilitySet, &str); 11] = [
    (CapabilitySet::BPF, "loads programs and works with maps"),
    (CapabilitySet::PERFMON, "loads programs that the verifier lets follow addresses"),
    (CapabilitySet::NET_ADMIN, "attaches programs to interfaces"),
    (CapabilitySet::SETUID, "gives each front process its user, and another one when it has ended"),
    (CapabilitySet::SETGID, "gives each front process its groups"),
    (CapabilitySet::SETPCAP, "empties the bounding set of each front process"),
    (CapabilitySet::KILL, "ends a front process that hangs, which has another user"),
    (CapabilitySet::CHOWN, "gives sockets to their group, and a saved policy to its owner"),
    (CapabilitySet::FOWNER, "sets the mode of a policy that is somebody else's and is saved"),
    (CapabilitySet::DAC_OVERRIDE, "reads tokens and keys, and makes sockets, where others own the directory"),
    (CapabilitySet::NET_BIND_SERVICE, "listens on ports below 1024"),
];

/// The resource limit that lets threads have the highest priority, a nice value of -20.
const EVERY_PRIORITY: u64 = 40;

/// Gives up every right that is not used. Called while the process has one thread: other threads would keep their rights.
pub(in crate::daemon) fn give_up_the_rest(pins: &PinDir) -> Result<(), Failure> {
    let kept = KEPT.iter().fold(prepare(pins), |all, (one, _)| all | *one);
    restrict(kept).map_err(|error| {
        Failure::new(ExitCode::NotPermitted, format!("cannot give up rights that are not used: {error}"))
    })
}

/// Does the work that needs a right which is given up, as far as this process has it. Returns a capability to keep if the last part failed. The daemon also works
/// without all of this, as it does under the packaged unit.
fn prepare(pins: &PinDir) -> CapabilitySet {
    // CAP_SYS_ADMIN: names of programs, for the refusal of an interface with a foreign program, and for IP links of earlier builds.
    pinned_link::remember_names();
    // CAP_SYS_ADMIN as well: inner maps of an earlier build, such as its policy, are opened by their number.
    inner_maps::pin_those_of_earlier_builds(pins);
    // CAP_SYS_PTRACE: which sockets SSH servers have open.
    learn_ssh_ports(&lockout::ssh_ports(Path::new("/proc")));
    // CAP_SYS_RESOURCE: descriptors for connections, and the priority of the thread that guards interfaces that come back.
    descriptors::allow_more();
    let every = Rlimit { current: Some(EVERY_PRIORITY), maximum: Some(EVERY_PRIORITY) };
    match setrlimit(Resource::Nice, every) {
        Ok(()) => CapabilitySet::empty(),
        // A container may leave root CAP_SYS_NICE and not CAP_SYS_RESOURCE.
        Err(_) => CapabilitySet::SYS_NICE,
    }
}

fn restrict(kept: CapabilitySet) -> io::Result<()> {
    let held = capabilities(None)?;
    // Without CAP_SETPCAP the bounding set stays as it is, and the flag below keeps processes from gaining rights from it.
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter().filter(|one| !kept.contains(*one)) {
            if capability_is_in_bounding_set(capability).unwrap_or(false) {
                remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    set_no_new_privs(true)?;
    let (effective, permitted) = (held.effective & kept, held.permitted & kept);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })?;
    Ok(())
}
