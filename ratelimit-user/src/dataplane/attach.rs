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
use ratelimit_common::abi::names;

use super::{
    DataplaneError,
    framing::Framing,
    interface::{self, AttachMode, Attached, Interface},
    kernel::Program,
    pin::{self, PinDir},
};

/// How long whoever answers others meanwhile waits for the kernel to let go of links.
pub const RELEASE_DEADLINE: Duration = Duration::from_secs(2);

/// An interface with our program on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// Its name.
    pub interface: String,
    /// Its index, which it keeps when it is renamed.
    pub index: u32,
    /// What its frames are read as.
    pub framing: Framing,
    /// How the program runs.
    pub mode: AttachMode,
    /// Whether the link was there before.
    pub adopted: Adopted,
    /// Why not native, if it is not.
    pub not_native: Option<String>,
    /// Why packets are not answered, although their frames have a sender who could be.
    pub mute: Option<Mute>,
    /// Whether it has been reported that the program is not there any more.
    pub lost: bool,
}

/// Why packets of an interface are not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mute {
    /// Answers would lack the VLAN tags of what they answer.
    TagsLost,
    /// It is one of a pair, and the other end does not take answers: see [`interface::FarEnd::takes_answers`].
    FarEnd,
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

/// What is on an interface, seen from this network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// There is no such interface.
    Missing,
    /// The interface has no XDP program.
    Free,
    /// The interface has our program.
    Ours(Attached),
    /// The interface has a program of somebody else.
    Foreign(Attached),
}

impl Presence {
    /// As `status` has it: `native`, `generic`, `foreign` or `detached`, and why it is one of the latter.
    pub fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Ours(attached) => (attached.mode.name(), None),
            Self::Foreign(_) => ("foreign", Some("another program has taken the place of ours")),
            Self::Free => ("detached", Some("our program is gone")),
            Self::Missing => ("detached", Some("the interface is gone")),
        }
    }
}

/// Looks at one interface.
pub fn presence(pins: &PinDir, name: &str) -> Result<Presence, DataplaneError> {
    Ok(presence_among(pins, &interface::list()?, name))
}

/// Looks at one of these interfaces.
pub fn presence_among(pins: &PinDir, all: &[Interface], name: &str) -> Presence {
    let Some(found) = all.iter().find(|interface| interface.name == name) else { return Presence::Missing };
    match found.attached {
        None => Presence::Free,
        Some(attached) if is_ours(pins, name, attached) => Presence::Ours(attached),
        Some(attached) => Presence::Foreign(attached),
    }
}

/// Looks at every interface before anything is loaded, so that a refusal leaves nothing behind.
pub fn preflight(pins: &PinDir, names: &[String], generic: GenericMode) -> Result<(), DataplaneError> {
    let all = interface::list()?;
    let renamed = renamed(pins, &all)?;
    for name in names {
        // Also the earlier daemon's own program is of no use on an interface that it cannot read.
        interface::among(&all, name)?.require_framing()?;
        match presence_among(pins, &all, name) {
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
            Presence::Free if is_elsewhere(pins, name) && !renamed.iter().any(|one| one.before == *name) => {
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

/// An interface of ours that has another name than its pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// Its index.
    pub index: u32,
    /// The name of the pin.
    pub before: String,
    /// The interface's name.
    pub now: String,
}

/// Interfaces that were renamed while no daemon looked.
pub fn renamed(pins: &PinDir, all: &[Interface]) -> Result<Vec<Renamed>, DataplaneError> {
    let mut renamed = Vec::new();
    for before in pins.linked_interfaces()? {
        let Some(index) = pinned_index(pins, &before) else { continue };
        // An interface in another namespace can have that index too, but not our program without a pin of its own.
        if let Some(one) = renamed_to(pins, all, &before, index)
            && pinned_index(pins, &one.now) != Some(index)
        {
            renamed.push(one);
        }
    }
    Ok(renamed)
}

/// The new name of an interface of ours, if it has one.
pub fn renamed_to(pins: &PinDir, all: &[Interface], before: &str, index: u32) -> Option<Renamed> {
    let now = all.iter().find(|interface| interface.index == index && interface.name != before)?;
    // Else it is another one that was given the index of one that is gone.
    is_ours(pins, before, now.attached?).then(|| Renamed {
        index,
        before: before.to_owned(),
        now: now.name.clone(),
    })
}

/// Gives pins the names that their interfaces have now.
pub fn follow(pins: &PinDir, renamed: &[Renamed]) -> Result<(), DataplaneError> {
    // In two steps, because names may have been swapped. No interface is called like the names in between; a daemon that
    // ends there leaves pins that the next one finds to be of renamed interfaces.
    let between = |one: &Renamed| format!(":{}", one.index);
    for one in renamed {
        if is_elsewhere(pins, &one.now) && !renamed.iter().any(|other| other.before == one.now) {
            let reason = "the link of an interface in another network namespace has its pin".to_owned();
            return Err(DataplaneError::Attach { interface: one.now.clone(), reason });
        }
    }
    for one in renamed {
        pins.rename_link(&one.before, &between(one))?;
    }
    for one in renamed {
        pins.rename_link(&between(one), &one.now)?;
    }
    Ok(())
}

/// Guards every interface of these that has no program yet, or none of them.
pub fn attach_new(
    program: &mut Program,
    pins: &PinDir,
    names: &[String],
    generic: GenericMode,
) -> Result<Vec<Guarded>, DataplaneError> {
    let mut guarded: Vec<Guarded> = Vec::new();
    for name in names {
        let all = interface::list()?;
        if presence_among(pins, &all, name) != Presence::Free {
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

/// What became of the links that earlier daemons left.
#[derive(Debug, Default)]
pub struct Replaced {
    /// On interfaces of this namespace.
    pub guarded: Vec<Guarded>,
    /// On interfaces in another network namespace.
    pub elsewhere: Vec<String>,
    /// On interfaces whose frames the program cannot read, which it has been taken off.
    pub unreadable: Vec<DataplaneError>,
}

/// Gives every pinned link the new program, wherever its interface is, and forgets links whose interface is gone.
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
        if !is_alive(pins, &name)? {
            pins.remove_link(&name)?;
            continue;
        }
        let Presence::Ours(attached) = presence_among(pins, &all, &name) else {
            replace(program, pins, &name, framing_of_link(pins, &name))?;
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

/// What became of links that were to go.
#[derive(Debug, Default)]
pub struct Unlinked {
    /// Interfaces without a pin. Nothing is left to be done about them: where the program still runs, the kernel or whoever holds the link open ends it.
    pub unpinned: Vec<String>,
    /// Those of them whose program still ran when the time was over.
    pub slow: Vec<String>,
    /// Pins that could not be removed; protection goes on there.
    pub failed: Vec<DataplaneError>,
}

impl Unlinked {
    /// That the program is off every interface, or which it is not off, and why.
    pub fn done(self, within: Duration) -> Result<Vec<String>, DataplaneError> {
        if let Some(error) = self.failed.into_iter().next() {
            return Err(error);
        }
        if self.slow.is_empty() {
            return Ok(self.unpinned);
        }
        Err(DataplaneError::StillRuns { interfaces: self.slow, seconds: within.as_secs() })
    }
}

/// Takes the program off interfaces, and returns when it is off, or after so much time. One that is slow, or that fails, keeps no other one.
pub fn detach(pins: &PinDir, names: &[String], within: Duration) -> Unlinked {
    unlink(pins, names).wait(within)
}

/// Links without a pin, which the kernel lets go of.
#[derive(Debug)]
pub struct Unlinking {
    unlinked: Unlinked,
    /// Interfaces that had a pin, and the program that the link ran.
    running: Vec<(String, Option<u32>)>,
}

/// Begins to take the program off interfaces: removes the pins that keep it there.
pub fn unlink(pins: &PinDir, names: &[String]) -> Unlinking {
    let mut unlinked = Unlinked::default();
    let mut running = Vec::new();
    for name in names {
        let program = open_link(pins, name).and_then(|link| link.info().ok()).map(|info| info.program_id());
        // Somebody may have removed the pin: the kernel has let go of the link, or its holder will.
        if pins.link(name).exists() {
            if let Err(error) = pins.remove_link(name) {
                unlinked.failed.push(error);
                continue;
            }
            running.push((name.clone(), program));
        }
        unlinked.unpinned.push(name.clone());
    }
    Unlinking { unlinked, running }
}

impl Unlinking {
    /// Interfaces without a pin now.
    pub fn unpinned(&self) -> &[String] {
        &self.unlinked.unpinned
    }

    /// Returns when the program is off, or after so much time.
    pub fn wait(self, within: Duration) -> Unlinked {
        let Self { mut unlinked, mut running } = self;
        // The kernel lets go of an unpinned link in a work queue: moments later, but not at once.
        let deadline = Instant::now() + within;
        loop {
            let all = interface::list().unwrap_or_default();
            running.retain(|(name, program)| {
                let attached = interface::among(&all, name).ok().and_then(|found| found.attached);
                attached.is_some_and(|attached| Some(attached.program_id) == *program)
            });
            if running.is_empty() || Instant::now() >= deadline {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        unlinked.slow = running.into_iter().map(|(name, _)| name).collect();
        unlinked
    }
}

/// Switches a link of ours to the program for this framing. The kernel does it in one step.
pub fn replace(
    program: &mut Program,
    pins: &PinDir,
    name: &str,
    framing: Framing,
) -> Result<(), DataplaneError> {
    let failed = |reason: String| DataplaneError::Attach { interface: name.to_owned(), reason };
    let link = open_link(pins, name).ok_or_else(|| failed("its pinned link cannot be opened".into()))?;
    let link = XdpLink::try_from(link).map_err(|e| failed(e.to_string()))?;
    let xdp = program.for_framing(framing)?;
    let id = xdp.attach_to_link(link).map_err(|e| failed(reason(&e)))?;
    // The pin alone must keep the link, or unpinning would not detach while this process runs.
    drop(xdp.take_link(id).map_err(|e| failed(reason(&e)))?);
    Ok(())
}

/// Puts the program on an interface that has none, up or down.
pub fn attach(
    program: &mut Program,
    pins: &PinDir,
    interface: &Interface,
    generic: GenericMode,
) -> Result<Guarded, DataplaneError> {
    let name = &interface.name;
    // A pin without a program on the interface is the link of an interface of that name that is gone.
    if pins.link(name).exists() && !is_alive(pins, name)? {
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
    // Only a link with a descriptor can be pinned. If this fails, dropping it detaches.
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

/// Whether the interface of a pinned link still exists, in whichever namespace. A link that cannot be asked is no sign that it does not: a
/// process that has no descriptors left would take the program off an interface that is there.
fn is_alive(pins: &PinDir, name: &str) -> Result<bool, DataplaneError> {
    let failed = |reason: String| DataplaneError::Attach { interface: name.to_owned(), reason };
    let link = PinnedLink::from_pin(pins.link(name))
        .map_err(|error| failed(format!("its pinned link cannot be opened: {error}")))?;
    let link = FdLink::from(link);
    let id = link.info().map_err(|error| failed(format!("its pinned link cannot be asked: {error}")))?.id();
    let index =
        link_interface(id).ok_or_else(|| failed("the kernel does not say where its link is".into()))?;
    Ok(index != 0)
}

/// The index of the interface of a pinned link, in whichever namespace it is; none once the interface is gone.
fn pinned_index(pins: &PinDir, name: &str) -> Option<u32> {
    let link = open_link(pins, name)?;
    link_interface(link.info().ok()?.id()).filter(|index| *index != 0)
}

/// What the program on a link reads frames as, told by its name: the interface cannot be asked where it is.
pub fn framing_of_link(pins: &PinDir, name: &str) -> Framing {
    let id = open_link(pins, name).and_then(|link| link.info().ok()).map(|info| info.program_id());
    match id.and_then(program_name) {
        // The kernel keeps fifteen letters of it.
        Some(name) if name.starts_with(names::PROGRAM_IP) => Framing::Ip,
        _ => Framing::Ethernet,
    }
}

/// The name of a loaded program.
pub fn program_name(id: u32) -> Option<String> {
    let program = loaded_programs().flatten().find(|program| program.id() == id)?;
    program.name_as_str().map(str::to_owned)
}

/// Whether the pinned link of a name is on an interface that is not visible here under that name.
fn is_elsewhere(pins: &PinDir, name: &str) -> bool {
    pins.link(name).exists() && is_alive(pins, name).unwrap_or(true)
}

/// The interface index of a link that this process has open; 0 once the interface is gone.
///
/// The kernel tells it in the link's fdinfo. aya has neither that nor the descriptor's number.
fn link_interface(link_id: u32) -> Option<u32> {
    let wanted = format!("link_id:\t{link_id}");
    for entry in fs::read_dir("/proc/self/fdinfo").ok()?.flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        if text.lines().any(|line| line == wanted) {
            return text.lines().find_map(|line| line.strip_prefix("ifindex:\t")?.parse().ok());
        }
    }
    None
}

/// The refusal of an interface that has somebody else's program.
fn foreign(pins: &PinDir, interface: &str, attached: Attached) -> DataplaneError {
    let program = program_name(attached.program_id);
    let is_one_of_ours = |program: &str| {
        [names::PROGRAM, names::PROGRAM_FRAGS].contains(&program) || program.starts_with(names::PROGRAM_IP)
    };
    if program.as_deref().is_some_and(is_one_of_ours) {
        return DataplaneError::PinnedElsewhere {
            interface: interface.to_owned(),
            id: attached.program_id,
            pin: pins.root().to_owned(),
            elsewhere: pin::with_link(interface)
                .into_iter()
                .find(|root| is_ours(&PinDir::new(root), interface, attached)),
        };
    }
    DataplaneError::ForeignProgram {
        interface: interface.to_owned(),
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
