//! Putting the program on interfaces, and taking it off again.
//!
//! Nothing here ever leaves a moment without a program: a link that is ours gets the new program in place of the old
//! one, and a program that is not ours is never touched.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use aya::programs::{
    ProgramError, XdpMode,
    links::{FdLink, PinnedLink},
    loaded_programs,
    xdp::XdpLink,
};

use super::{
    DataplaneError,
    interface::{self, Attached, Interface, Mode},
    kernel::Program,
    pin::PinDir,
};

/// How long the kernel may take to let go of a link.
const RELEASE_DEADLINE: Duration = Duration::from_secs(2);

/// An interface with our program on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// Its name.
    pub interface: String,
    /// How the program runs.
    pub mode: Mode,
    /// Whether the link was there before.
    pub adopted: Adopted,
    /// Why not native, if it is not.
    pub not_native: Option<String>,
}

/// Whether protection was on already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// A link of an earlier daemon was found, and its program replaced.
    Yes,
    /// A new link was made.
    No,
}

/// What generic mode is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenericMode {
    /// Take it, and say so.
    Accept,
    /// Fail instead.
    Refuse,
}

/// Looks at every interface before anything is loaded, so that a refusal leaves nothing behind.
pub fn preflight(pins: &PinDir, names: &[String]) -> Result<(), DataplaneError> {
    for name in names {
        let interface = interface::find(name)?;
        if let Some(attached) = interface.attached
            && !is_ours(pins, name, attached)
        {
            return Err(foreign(&interface, attached));
        }
    }
    Ok(())
}

/// Guards every interface, or none that was not guarded before.
pub fn attach_all(
    program: &mut Program,
    pins: &PinDir,
    names: &[String],
    generic: GenericMode,
) -> Result<Vec<Guarded>, DataplaneError> {
    let mut guarded: Vec<Guarded> = Vec::new();
    for name in names {
        match attach(program, pins, name, generic) {
            Ok(one) => guarded.push(one),
            Err(error) => {
                for undo in guarded.iter().filter(|one| one.adopted == Adopted::No) {
                    pins.remove_link(&undo.interface)?;
                }
                return Err(error);
            }
        }
    }
    Ok(guarded)
}

/// Takes the program off an interface, and returns when it is off.
pub fn detach(pins: &PinDir, name: &str) -> Result<(), DataplaneError> {
    let program = open_link(pins, name).and_then(|link| link.info().ok()).map(|info| info.program_id());
    pins.remove_link(name)?;
    // The kernel lets go of an unpinned link in a work queue: moments later, but not at once.
    let deadline = Instant::now() + RELEASE_DEADLINE;
    while Instant::now() < deadline {
        match interface::find(name) {
            Ok(found) if found.attached.map(|attached| attached.program_id) == program => {
                thread::sleep(Duration::from_millis(1));
            }
            _ => return Ok(()),
        }
    }
    let reason =
        "its pin is gone, and still the program runs; does another process hold the link open?".to_owned();
    Err(DataplaneError::Attach { interface: name.to_owned(), reason })
}

fn attach(
    program: &mut Program,
    pins: &PinDir,
    name: &str,
    generic: GenericMode,
) -> Result<Guarded, DataplaneError> {
    let found = interface::find(name)?;
    match found.attached {
        Some(attached) if !is_ours(pins, name, attached) => Err(foreign(&found, attached)),
        Some(attached) => replace(program, pins, name, attached, generic),
        None => {
            // A pin without a program on the interface is the link of an interface of that name that is gone.
            if pins.link(name).exists() {
                pins.remove_link(name)?;
            }
            attach_new(program, pins, name, generic)
        }
    }
}

/// Switches a link of ours to the new program. The kernel does it in one step.
fn replace(
    program: &mut Program,
    pins: &PinDir,
    name: &str,
    attached: Attached,
    generic: GenericMode,
) -> Result<Guarded, DataplaneError> {
    let not_native = (attached.mode == Mode::Generic).then(|| "an earlier daemon attached it so".to_owned());
    if let (Some(reason), GenericMode::Refuse) = (&not_native, generic) {
        return Err(DataplaneError::NotNative { interface: name.to_owned(), reason: reason.clone() });
    }
    let failed = |reason: String| DataplaneError::Attach { interface: name.to_owned(), reason };
    let link = open_link(pins, name).ok_or_else(|| failed("its pinned link cannot be opened".into()))?;
    let link = XdpLink::try_from(link).map_err(|e| failed(e.to_string()))?;
    let xdp = program.xdp()?;
    let id = xdp.attach_to_link(link).map_err(|e| failed(reason(&e)))?;
    // The pin alone must keep the link, or unpinning would not detach while this process runs.
    drop(xdp.take_link(id).map_err(|e| failed(reason(&e)))?);
    Ok(Guarded { interface: name.to_owned(), mode: attached.mode, adopted: Adopted::Yes, not_native })
}

fn attach_new(
    program: &mut Program,
    pins: &PinDir,
    name: &str,
    generic: GenericMode,
) -> Result<Guarded, DataplaneError> {
    let failed = |reason: String| DataplaneError::Attach { interface: name.to_owned(), reason };
    let xdp = program.xdp()?;
    let (id, mode, not_native) = match xdp.attach(name, XdpMode::Driver) {
        Ok(id) => (id, Mode::Native, None),
        Err(error) if generic == GenericMode::Refuse => {
            return Err(DataplaneError::NotNative { interface: name.to_owned(), reason: reason(&error) });
        }
        Err(native) => {
            let id = xdp.attach(name, XdpMode::Skb).map_err(|e| failed(reason(&e)))?;
            (id, Mode::Generic, Some(reason(&native)))
        }
    };
    let link = xdp.take_link(id).map_err(|e| failed(reason(&e)))?;
    // Only a link with a descriptor can be pinned. If this fails, dropping it detaches.
    let link = FdLink::try_from(link).map_err(|e| failed(e.to_string()))?;
    link.pin(pins.link(name)).map_err(|e| failed(e.to_string()))?;
    Ok(Guarded { interface: name.to_owned(), mode, adopted: Adopted::No, not_native })
}

/// A program is ours when the link pinned for its interface runs it.
fn is_ours(pins: &PinDir, name: &str, attached: Attached) -> bool {
    let program = open_link(pins, name).and_then(|link| link.info().ok()).map(|info| info.program_id());
    program == Some(attached.program_id)
}

/// The pinned link of an interface. The pin itself stays.
fn open_link(pins: &PinDir, name: &str) -> Option<FdLink> {
    let path = pins.link(name);
    fs::metadata(&path).ok()?;
    Some(PinnedLink::from_pin(path).ok()?.into())
}

fn foreign(interface: &Interface, attached: Attached) -> DataplaneError {
    let program = loaded_programs()
        .flatten()
        .find(|program| program.id() == attached.program_id)
        .and_then(|program| program.name_as_str().map(str::to_owned));
    DataplaneError::ForeignProgram {
        interface: interface.name.clone(),
        program: program.unwrap_or_else(|| "unnamed".to_owned()),
        id: attached.program_id,
    }
}

/// What the kernel said, without the name of the system call.
fn reason(error: &ProgramError) -> String {
    match error {
        ProgramError::SyscallError(e) => e.io_error.to_string(),
        ProgramError::XdpError(e) => e.to_string(),
        other => other.to_string(),
    }
}
