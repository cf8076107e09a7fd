//! Nanoseconds per run, by the kernel's own measurement.

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    maps::ProgramArray,
    programs::{TestRun as _, TestRunOptions, Xdp},
};

use super::{Cost, Extent, subject::Subject};
use crate::{
    rig,
    traffic::{self, Family, Traffic},
};

/// Runs a frame so many times: nanoseconds per run. The kernel rounds down to whole ones.
pub(super) fn ns(xdp: &Xdp, frame: &[u8], runs: u32) -> Result<f64> {
    let options = TestRunOptions { data_in: Some(frame), repeat: runs, ..TestRunOptions::new() };
    let done = xdp.test_run(options).context("cannot run the program: BPF_PROG_TEST_RUN")?;
    Ok(done.duration.as_nanos() as f64)
}

/// A program of the rig by itself.
pub(super) struct Empty(Ebpf);

impl Empty {
    const PROGRAM: &str = "drop";

    pub(super) fn new() -> Result<Self> {
        let mut ebpf = Ebpf::load(rig::OBJECT).context("cannot load the rig's object")?;
        rig::xdp(&mut ebpf, Self::PROGRAM)?.load().context("the kernel does not take the empty program")?;
        Ok(Self(ebpf))
    }

    pub(super) fn xdp(&mut self) -> Result<&mut Xdp> {
        rig::xdp(&mut self.0, Self::PROGRAM)
    }
}

/// Many sources in front of a program.
pub(super) struct Varied {
    ebpf: Ebpf,
    program: &'static str,
    frame: Vec<u8>,
}

impl Varied {
    /// Hands every packet on to `measured`.
    pub(super) fn new(traffic: &Traffic, measured: &Xdp) -> Result<Self> {
        let template = traffic.template();
        let mut ebpf = rig::load_varying(traffic, &template, 0)?;
        let program = match traffic.family {
            Family::V4 => "vary",
            Family::V6 => "vary_v6",
        };
        rig::xdp(&mut ebpf, program)?.load().context("the kernel does not take the rig's program")?;
        let map = ebpf.map_mut("MEASURED").context("the rig has no map MEASURED")?;
        let mut next = ProgramArray::try_from(map).context("MEASURED is not a program array")?;
        let fd = measured.fd().context("the program to measure is not loaded")?;
        next.set(0, fd, 0).context("cannot put the program behind the rig's")?;
        Ok(Self { ebpf, program, frame: template.frame })
    }

    pub(super) fn ns(&self, runs: u32) -> Result<f64> {
        ns(rig::in_use(&self.ebpf, self.program)?, &self.frame, runs)
    }
}

/// Many sources in front of a program that is measured, and in front of the empty one.
pub(super) struct Crowd {
    measured: Varied,
    floor: Varied,
    /// The empty program, for as long as it is measured.
    _empty: Empty,
}

impl Crowd {
    /// A crowd of which so many packets have been there.
    pub(super) fn settled(subject: &mut Subject, sources: u32, packets: u32) -> Result<Self> {
        let traffic = Traffic { family: Family::V4, base_v4: traffic::BASE_V4, sources, frame_len: 64 };
        let mut empty = Empty::new()?;
        let floor = Varied::new(&traffic, empty.xdp()?)?;
        let measured = Varied::new(&traffic, subject.xdp())?;
        measured.ns(packets)?;
        Ok(Self { measured, floor, _empty: empty })
    }

    /// What a packet of the crowd costs.
    pub(super) fn cost(&self, extent: Extent) -> Result<Cost> {
        extent.cost(|runs| self.measured.ns(runs), |runs| self.floor.ns(runs))
    }
}
