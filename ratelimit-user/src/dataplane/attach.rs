//! Attaches the program to interfaces.
//!
//! An interface is never without a program in between: a link of ours gets the new program in place of the old one, and
//! a program that is not ours is never touched.

use std::collections::BTreeSet;

use aya::programs::{ProgramError, XdpMode, links::FdLink, xdp::XdpLink};
use ratelimit_common::abi::names;

use super::{
    DataplaneError,
    framing::Framing,
    interface::{self, AttachMode, Attached, Interface},
    ip_programs,
    kernel::Program,
    pin::{self, PinDir},
    pinned_link,
    presence::Presence,
    renamed::Renamed,
};

/// An interface with our program on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// The name of the interface.
    pub interface: String,
    /// The index of the interface, which stays when the interface is renamed.
    pub index: u32,
    /// How frames of the interface are read.
    pub framing: Framing,
    /// Whether the program runs in native or generic mode.
    pub mode: AttachMode,
    /// Whether the link was there before this daemon.
    pub adopted: Adopted,
    /// Why the mode is not native, if it is not.
    pub not_native: Option<String>,
    /// Why packets of the interface are not answered with SYN-ACKs or resets; `None` if they are, or if the framing allows no answer.
    pub mute: Option<Mute>,
    /// Whether the loss of the program has been reported.
    pub lost: bool,
}

/// Why packets of an interface are not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mute {
    /// Answers would lack the VLAN tags of the packets that they answer.
    TagsLost,
    /// The interface is one of a pair, and the other end does not take answers: see [`interface::FarEnd::takes_answers`].
    FarEnd,
}

/// Whether an interface was protected already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// A link of an earlier daemon was found, and its program replaced.
    Yes,
    /// A new link was made.
    No,
}

/// How attaching deals with an interface that can only run generic mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenericMode {
    /// Attaching uses generic mode, and says so.
    Accept,
    /// Attaching fails instead of using generic mode.
    Refuse,
}

/// Checks every interface before anything is loaded, so that a refusal leaves nothing behind.
pub fn preflight(pins: &PinDir, names: &[String], generic: GenericMode) -> Result<(), DataplaneError> {
    let all = interface::list()?;
    let renamed = Renamed::all(pins, &all)?;
    for name in names {
        // This holds for the program of an earlier daemon as well: it is of no use on an interface whose frames it cannot read.
        interface::among(&all, name)?.require_framing()?;
        match Presence::among(pins, &all, name) {
            Presence::Foreign(attached) if !renamed.iter().any(|one| one.now == *name) => {
                return Err(foreign(pins, name, attached));
            }
            Presence::Ours(Attached { mode: AttachMode::Generic, .. })
            | Presence::Foreign(Attached { mode: AttachMode::Generic, .. })
                if generic == GenericMode::Refuse =>
            {
                let reason = "an earlier daemon attached it so".to_owned();
                return Err(DataplaneError::NotNative { interface: name.clone(), reason });
            }
            Presence::Free
                if pinned_link::is_elsewhere(pins, name)
                    && !renamed.iter().any(|one| one.before == *name) =>
            {
                let reason = format!(
                    "the link pinned for that name under {} is on an interface elsewhere, in another network namespace; use \
                     another --pin, or detach it there",
                    pins.root().display()
                );
                return Err(DataplaneError::Attach { interface: name.clone(), reason });
            }
            Presence::Missing | Presence::Free | Presence::Ours(_) | Presence::Foreign(_) => {}
        }
    }
    Ok(())
}

/// Returns the names of interfaces that run a program of ours. A link that cannot be asked counts as one that does.
pub fn guarded_already(pins: &PinDir) -> Result<BTreeSet<String>, DataplaneError> {
    let mut names = pins.linked_interfaces()?;
    names.retain(|name| pinned_link::is_alive(pins, name).unwrap_or(true));
    Ok(names.into_iter().collect())
}

/// Attaches the program to those of the named interfaces that have none. If one of them fails, none of them keeps it.
pub fn attach_new(
    program: &mut Program,
    pins: &PinDir,
    names: &[String],
    generic: GenericMode,
) -> Result<Vec<Guarded>, DataplaneError> {
    let mut guarded: Vec<Guarded> = Vec::new();
    for name in names {
        let all = interface::list()?;
        if Presence::among(pins, &all, name) != Presence::Free {
            continue;
        }
        let attached = interface::among(&all, name).and_then(|found| attach(program, pins, found, generic));
        match attached {
            Ok(one) => guarded.push(one),
            Err(error) => {
                for undo in &guarded {
                    pins.remove_link(&undo.interface)?;
                }
                return Err(error);
            }
        }
    }
    Ok(guarded)
}

/// The links of earlier daemons, after their programs were replaced.
#[derive(Debug, Default)]
pub struct Replaced {
    /// Links on interfaces of this network namespace.
    pub guarded: Vec<Guarded>,
    /// Names of links on interfaces in another network namespace.
    pub elsewhere: Vec<String>,
    /// Errors about interfaces whose frames the program cannot read. The program has been taken off them.
    pub unreadable: Vec<DataplaneError>,
}

/// Gives every pinned link but `except` the new program, wherever its interface is, and unpins links whose interface is gone.
pub fn replace_all(
    program: &mut Program,
    pins: &PinDir,
    except: &[Guarded],
) -> Result<Replaced, DataplaneError> {
    let mut replaced = Replaced::default();
    let all = interface::list()?;
    for name in pins.linked_interfaces()? {
        if except.iter().any(|new| new.interface == name) {
            continue;
        }
        if !pinned_link::is_alive(pins, &name)? {
            pins.remove_link(&name)?;
            continue;
        }
        let Presence::Ours(attached) = Presence::among(pins, &all, &name) else {
            replace(program, pins, &name, ip_programs::framing(pins, &name))?;
            replaced.elsewhere.push(name);
            continue;
        };
        let found = interface::among(&all, &name)?;
        let framing = match found.require_framing() {
            Ok(framing) => framing,
            Err(error) => {
                pins.remove_link(&name)?;
                replaced.unreadable.push(error);
                continue;
            }
        };
        replace(program, pins, &name, framing)?;
        replaced.guarded.push(Guarded {
            interface: name,
            index: found.index,
            framing,
            mode: attached.mode,
            adopted: Adopted::Yes,
            not_native: (attached.mode == AttachMode::Generic)
                .then(|| "an earlier daemon attached it so".to_owned()),
            mute: None,
            lost: false,
        });
    }
    Ok(replaced)
}

/// Switches a link of ours to the program for a framing. The kernel does this in one step.
pub fn replace(
    program: &mut Program,
    pins: &PinDir,
    name: &str,
    framing: Framing,
) -> Result<(), DataplaneError> {
    let failed = |reason: String| DataplaneError::Attach { interface: name.to_owned(), reason };
    let link =
        pinned_link::open(pins, name).ok_or_else(|| failed("its pinned link cannot be opened".into()))?;
    let link = XdpLink::try_from(link).map_err(|e| failed(e.to_string()))?;
    let xdp = program.for_framing(framing)?;
    let id = xdp.attach_to_link(link).map_err(|e| failed(reason(&e)))?;
    // The pin alone must keep the link, or unpinning would not detach while this process runs.
    drop(xdp.take_link(id).map_err(|e| failed(reason(&e)))?);
    Ok(())
}

/// Attaches the program to an interface that has none, whether it is up or down.
pub fn attach(
    program: &mut Program,
    pins: &PinDir,
    interface: &Interface,
    generic: GenericMode,
) -> Result<Guarded, DataplaneError> {
    let name = &interface.name;
    // A pin whose link is dead belongs to an earlier interface with the same name.
    if pins.link(name).exists() && !pinned_link::is_alive(pins, name)? {
        pins.remove_link(name)?;
    }
    let framing = interface.require_framing()?;
    let failed = |reason: String| DataplaneError::Attach { interface: name.to_owned(), reason };
    let xdp = program.for_framing(framing)?;
    let (id, mode, not_native) = match xdp.attach_to_if_index(interface.index, XdpMode::Driver) {
        Ok(id) => (id, AttachMode::Native, None),
        Err(error) if generic == GenericMode::Refuse => {
            return Err(DataplaneError::NotNative { interface: name.to_owned(), reason: reason(&error) });
        }
        Err(native) => {
            let generic = xdp.attach_to_if_index(interface.index, XdpMode::Skb);
            (generic.map_err(|e| failed(reason(&e)))?, AttachMode::Generic, Some(reason(&native)))
        }
    };
    let link = xdp.take_link(id).map_err(|e| failed(reason(&e)))?;
    // Only a link with a descriptor can be pinned. If this fails, dropping the link detaches the program.
    let link = FdLink::try_from(link).map_err(|e| failed(e.to_string()))?;
    link.pin(pins.link(name)).map_err(|e| failed(e.to_string()))?;
    Ok(Guarded {
        interface: name.to_owned(),
        index: interface.index,
        framing,
        mode,
        adopted: Adopted::No,
        not_native,
        mute: None,
        lost: false,
    })
}

/// Returns the refusal of an interface that runs a program not pinned under `pins`.
fn foreign(pins: &PinDir, interface: &str, attached: Attached) -> DataplaneError {
    let program = pinned_link::program_name(attached.program_id);
    let is_one_of_ours = |program: &str| {
        [names::PROGRAM, names::PROGRAM_FRAGS].contains(&program) || program.starts_with(names::PROGRAM_IP)
    };
    // A process that may not ask for the program's name can still find its pin.
    let elsewhere = pin::with_link(interface)
        .into_iter()
        .find(|root| pinned_link::is_ours(&PinDir::new(root), interface, attached));
    if elsewhere.is_some() || program.as_deref().is_some_and(is_one_of_ours) {
        return DataplaneError::PinnedElsewhere {
            interface: interface.to_owned(),
            id: attached.program_id,
            pin: pins.root().to_owned(),
            elsewhere,
        };
    }
    DataplaneError::ForeignProgram {
        interface: interface.to_owned(),
        program: program.unwrap_or_else(|| "of a name that only CAP_SYS_ADMIN is told".to_owned()),
        id: attached.program_id,
    }
}

/// Returns the error of the kernel, without the name of the system call.
fn reason(error: &ProgramError) -> String {
    match error {
        ProgramError::SyscallError(e) => e.io_error.to_string(),
        ProgramError::XdpError(e) => e.to_string(),
        other => other.to_string(),
    }
}
