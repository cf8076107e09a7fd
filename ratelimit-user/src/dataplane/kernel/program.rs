//! Loads and verifies the program, with the programs that it tail-calls.

use std::fmt;

use aya::{
    Ebpf, EbpfError, EbpfLoader,
    maps::{HashMap, MapData, MapError, ProgramArray},
    programs::{ProgramError, Xdp},
};
use ratelimit_common::abi::{
    listener::{self, Offsets},
    names,
};

use super::{KernelMaps, take_map};
use crate::dataplane::{
    DataplaneError,
    error::{FOR_PROGRAMS, whole_chain},
    framing::Framing,
    ip_programs::IpPrograms,
    kept::KeptVariables,
    listener::{Unreadable, offsets},
    pin::{Layout, PinDir},
    trace::{Image, TracedVerdict, VerdictLog},
};

/// A verified program, not attached to anything by itself.
pub struct Program {
    ebpf: Ebpf,
    /// The size of the table of sources, for the error about too little memory.
    sources: u32,
    jumps: ProgramArray<MapData>,
    jumps_ip: ProgramArray<MapData>,
    /// Indices of interfaces on which packets are not answered.
    silent: HashMap<MapData, u32, u32>,
    /// Whether the program for IP links is in the kernel. Most hosts never need it.
    has_ip: bool,
    /// The map with the id of the program for IP links, if maps are pinned.
    ip_programs: Option<IpPrograms>,
    cookie_problem: Option<String>,
    listener_problem: Option<String>,
}

/// Returns the number of sources that can have windows at once. It is a part of the table, because windows take twice the room of buckets, and few limits have them.
fn windowed_sources(sources: u32) -> u32 {
    (sources / 4).max(MIN_WINDOWED_SOURCES)
}

const MIN_WINDOWED_SOURCES: u32 = 1_024;

/// Attempts to load the program; an attempt fails when it meets a signal.
const LOAD_ATTEMPTS: u32 = 20;

/// Loads the program. With a pin directory, maps pinned there are adopted and new ones are pinned.
pub fn load(pins: Option<&PinDir>, sources: u32) -> Result<(Program, KernelMaps), DataplaneError> {
    load_image(pins, sources, offsets(), Image::PLAIN)
}

/// Loads one of the builds of the program. `offsets` says where this kernel keeps the settings of listeners, or why that is not known.
pub fn load_image(
    pins: Option<&PinDir>,
    sources: u32,
    offsets: Result<Offsets, Unreadable>,
    image: Image,
) -> Result<(Program, KernelMaps), DataplaneError> {
    let (mut program, mut maps) =
        load_reading(pins, sources, offsets.as_ref().unwrap_or(&listener::UNKNOWN), image)?;
    let mut problem = offsets.err();
    if problem.is_none()
        && let Some(refused) = program.cookie_problem.take()
    {
        // The program is loaded once more for a kernel that refuses only the reading of listeners. If the reason is another one, it refuses again.
        problem = Some(Unreadable::Refused(refused));
        (program, maps) = load_reading(pins, sources, &listener::UNKNOWN, image)?;
    }
    program.listener_problem = problem.map(|problem| problem.to_string());
    Ok((program, maps))
}

/// Loads one of the builds of the program once, with these offsets.
fn load_reading(
    pins: Option<&PinDir>,
    sources: u32,
    offsets: &Offsets,
    image: Image,
) -> Result<(Program, KernelMaps), DataplaneError> {
    let level = image.level.map(|level| level as u8);
    let layout = Layout::current(sources);
    let kept = pins.map(|pins| KeptVariables::read(pins, layout)).transpose()?.flatten();
    let mut loader = EbpfLoader::new();
    loader.override_global(listener::LISTENER, offsets, true);
    if let Some(level) = &level {
        loader.override_global(aya_log::LEVEL, level, true);
    }
    loader.map_max_entries(names::BUCKETS, sources);
    loader.map_max_entries(names::WINDOWS, windowed_sources(sources));
    loader.map_max_entries(names::KEPT_WINDOWS, windowed_sources(sources) / 2);
    if let Some(pins) = pins {
        pins.create(layout)?;
        for name in names::MAPS {
            loader.map_pin_path(name, pins.map(layout, name));
        }
    }
    if let Some(kept) = &kept {
        kept.hand_to(&mut loader);
    }
    let mut ebpf = loader.load(image.object).map_err(|error| load_error(&error, sources))?;
    let maps = KernelMaps::take(&mut ebpf, pins.map(|pins| (pins, layout)))?;
    let mut program = Program {
        sources,
        jumps: take_map(&mut ebpf, names::JUMPS)?,
        jumps_ip: take_map(&mut ebpf, names::JUMPS_IP)?,
        silent: take_map(&mut ebpf, names::SILENT)?,
        ebpf,
        has_ip: false,
        ip_programs: pins.map(|pins| IpPrograms::new(pins, layout, maps.pinned_inner())),
        cookie_problem: None,
        listener_problem: None,
    };
    verify(program.xdp()?, sources)?;
    let successors: Vec<(u32, &str)> = (0..).zip(names::SUCCESSORS).collect();
    let (cookies, others) = successors.split_at(names::COOKIE_PROGRAMS);
    program.load_successors(Framing::Ethernet, others)?;
    // A kernel that refuses the programs for cookies still gets the others.
    let cookies = program.load_successors(Framing::Ethernet, cookies);
    program.cookie_problem = cookies.err().map(|error| error.to_string());
    Ok((program, maps))
}

/// Loads the program into the kernel. The verifier gives up with EAGAIN when a signal is pending, and takes so long that it may
/// meet one; the signal is handled before the next attempt.
fn verify(xdp: &mut Xdp, sources: u32) -> Result<(), DataplaneError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match xdp.load() {
            Ok(()) => return Ok(()),
            Err(ProgramError::LoadError { io_error, .. })
                if io_error.raw_os_error() == Some(libc::EAGAIN) && attempts < LOAD_ATTEMPTS => {}
            Err(ProgramError::LoadError { io_error, .. })
                if io_error.raw_os_error() == Some(libc::ENOMEM) =>
            {
                return Err(DataplaneError::NoMemory { sources });
            }
            Err(error) => return Err(verifier_error(&error)),
        }
    }
}

impl Program {
    /// Returns the program for Ethernet.
    pub fn xdp(&mut self) -> Result<&mut Xdp, DataplaneError> {
        self.one(names::PROGRAM)
    }

    /// Returns the program for a framing. The program for IP links is loaded when it is first asked for.
    pub fn for_framing(&mut self, framing: Framing) -> Result<&mut Xdp, DataplaneError> {
        if framing == Framing::Ethernet {
            return self.xdp();
        }
        if !self.has_ip {
            let sources = self.sources;
            verify(self.one(names::PROGRAM_IP)?, sources)?;
            let [prove, mark] = names::SUCCESSORS_IP;
            self.load_successors(framing, &[mark])?;
            // If this fails, the programs for cookies on Ethernet failed too, and the daemon has reported that.
            let _said = self.load_successors(framing, &[prove]);
            self.has_ip = true;
            if let Some(programs) = self.ip_programs.take() {
                // If the file system of pins is gone, links end with the daemon, and no later daemon reads the map.
                let _nowhere = programs.note(self.one(names::PROGRAM_IP)?);
                self.ip_programs = Some(programs);
            }
        }
        self.one(names::PROGRAM_IP)
    }

    /// Sets whether packets that come in by an interface are left unanswered.
    pub fn set_silent(&mut self, index: u32, silent: bool) -> Result<(), DataplaneError> {
        let done = if silent {
            self.silent.insert(index, 1, 0)
        } else {
            match self.silent.remove(&index) {
                Err(MapError::KeyNotFound) => Ok(()),
                done => done,
            }
        };
        done.map_err(DataplaneError::map("name the interfaces without answers"))
    }

    /// Returns why this kernel refused the programs for SYN cookies, if it did.
    pub fn cookie_problem(&self) -> Option<&str> {
        self.cookie_problem.as_deref()
    }

    /// Returns why the programs for SYN cookies cannot read the settings of listeners, if they cannot.
    pub fn listener_problem(&self) -> Option<&str> {
        self.listener_problem.as_deref()
    }

    /// Returns the log of a traced program, which calls `told` with each verdict.
    pub fn verdicts<F: Fn(TracedVerdict) + Send + Sync>(
        &mut self,
        told: F,
    ) -> Result<VerdictLog<F>, DataplaneError> {
        VerdictLog::new(&mut self.ebpf, told)
    }

    /// Returns one program of the object by its name.
    pub fn one(&mut self, name: &str) -> Result<&mut Xdp, DataplaneError> {
        let missing = || DataplaneError::Load { reason: format!("the object has no program {name}") };
        let program = self.ebpf.program_mut(name).ok_or_else(missing)?;
        program.try_into().map_err(|error: ProgramError| verifier_error(&error))
    }

    fn load_successors(
        &mut self,
        framing: Framing,
        successors: &[(u32, &'static str)],
    ) -> Result<(), DataplaneError> {
        for (place, name) in successors {
            let sources = self.sources;
            verify(self.one(name)?, sources)?;
            let fd = self.one(name)?.fd().and_then(|fd| Ok(fd.try_clone()?));
            let fd = fd.map_err(|error| verifier_error(&error))?;
            let jumps = match framing {
                Framing::Ethernet => &mut self.jumps,
                Framing::Ip => &mut self.jumps_ip,
            };
            jumps
                .set(*place, &fd, 0)
                .map_err(DataplaneError::map("put the programs in place that this one jumps to"))?;
        }
        Ok(())
    }
}

// aya's arrays of programs have no Debug of their own.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("ebpf", &self.ebpf).finish_non_exhaustive()
    }
}

fn load_error(error: &EbpfError, sources: u32) -> DataplaneError {
    if let EbpfError::MapError(MapError::CreateError { name, io_error }) = error {
        match io_error.raw_os_error() {
            Some(libc::EPERM) => {
                return DataplaneError::NotPermitted {
                    action: format!("to make map {name}"),
                    needed: FOR_PROGRAMS,
                };
            }
            Some(libc::ENOMEM | libc::E2BIG) => return DataplaneError::NoMemory { sources },
            _ => {}
        }
    }
    DataplaneError::Load { reason: whole_chain(error) }
}

/// Makes an error from a verifier log of thousands of lines: the last line before the statistics says what is wrong.
fn verifier_error(error: &ProgramError) -> DataplaneError {
    if let ProgramError::LoadError { io_error, verifier_log } = error {
        if io_error.raw_os_error() == Some(libc::EPERM) {
            return DataplaneError::NotPermitted {
                action: "to load the program".into(),
                needed: FOR_PROGRAMS,
            };
        }
        let log = verifier_log.to_string();
        let line = log
            .lines()
            .rfind(|line| !line.is_empty() && !line.starts_with("processed ") && !is_statistic(line));
        let reason = format!("the verifier refused it ({io_error}): {}", line.unwrap_or("it gave no reason"));
        return DataplaneError::Load { reason };
    }
    DataplaneError::Load { reason: whole_chain(error) }
}

fn is_statistic(line: &str) -> bool {
    line.starts_with("verification time") || line.starts_with("stack depth")
}
