//! Samples: copies of frames that the kernel program makes while the daemon has buffers open.

use std::fmt;

use aya::{
    maps::{
        Array, MapData, PerfEventArray,
        perf::{PerfEvent, PerfEventArrayBuffer},
    },
    util::online_cpus,
};
use ratelimit_common::abi::sample::{SAMPLE_BYTES, SampleHeader, Sampling};

use super::DataplaneError;

/// The number of samples that all CPUs together should not exceed in an epoch, which is a tenth of a second.
const BUDGET: u32 = 2_048;
/// The number of samples that each CPU may make in an epoch at least, however many CPUs there are.
const LEAST_BUDGET: u32 = 32;
/// The largest size of one sample in a buffer, in bytes: the kernel's record header, the sample's header and the frame.
const RECORD_BYTES: u32 = 16 + size_of::<SampleHeader>() as u32 + SAMPLE_BYTES;
/// The number of epochs that fit into a buffer, so that a reader that is late by one or two loses no samples.
const EPOCHS_OF_ROOM: u32 = 3;
const PAGE_BYTES: u32 = 4_096;

/// The maps of the sampler, without open buffers.
pub struct Samples {
    array: PerfEventArray<MapData>,
    sampling: Array<MapData, Sampling>,
    epoch: u32,
}

/// Open buffers: the kernel program samples frames until this value is dropped.
pub struct OpenSamples<'s> {
    samples: &'s mut Samples,
    buffers: Vec<PerfEventArrayBuffer<MapData>>,
    cpus: Vec<u32>,
    budget: u32,
}

impl Samples {
    pub(super) fn new(array: PerfEventArray<MapData>, sampling: Array<MapData, Sampling>) -> Self {
        Self { array, sampling, epoch: 0 }
    }

    /// Opens buffers, and makes the program sample frames from now on.
    pub fn open(&mut self) -> Result<OpenSamples<'_>, DataplaneError> {
        let cpus = online_cpus()
            .map_err(|(what, error)| DataplaneError::Load { reason: format!("{what}: {error}") })?;
        let budget = (BUDGET / u32::try_from(cpus.len()).unwrap_or(u32::MAX).max(1)).max(LEAST_BUDGET);
        let pages = (EPOCHS_OF_ROOM * budget * RECORD_BYTES).div_ceil(PAGE_BYTES).next_power_of_two();
        let buffers = cpus
            .iter()
            .map(|cpu| self.array.open(*cpu, Some(pages as usize)))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| DataplaneError::Load { reason: format!("no buffer for samples: {error}") })?;
        let mut open = OpenSamples { samples: self, buffers, cpus, budget };
        open.begin_epoch()?;
        Ok(open)
    }

    fn ask(&mut self, epoch: u32, budget: u32) -> Result<(), DataplaneError> {
        self.sampling
            .set(0, Sampling { epoch, budget }, 0)
            .map_err(DataplaneError::map("say which frames are sampled"))
    }
}

impl OpenSamples<'_> {
    /// Begins the next epoch. The caller does this ten times a second.
    pub fn begin_epoch(&mut self) -> Result<(), DataplaneError> {
        // Epoch 0 tells the program that nobody reads samples.
        self.samples.epoch = self.samples.epoch.checked_add(1).unwrap_or(1);
        self.samples.ask(self.samples.epoch, self.budget)
    }

    /// Whether the set of online CPUs has changed since the buffers were opened.
    pub fn is_outdated(&self) -> bool {
        online_cpus().is_ok_and(|cpus| cpus != self.cpus)
    }

    /// Calls `told` with each unread sample and the copied bytes of its frame. Returns how many samples were lost for want of room.
    pub fn read(&mut self, mut told: impl FnMut(SampleHeader, &[u8])) -> u64 {
        let mut whole = Vec::new();
        let mut lost = 0;
        for buffer in &mut self.buffers {
            buffer.for_each(|event| match event {
                PerfEvent::Lost { count } => lost += count,
                PerfEvent::Sample { head, tail } => {
                    whole.clear();
                    whole.extend_from_slice(head);
                    whole.extend_from_slice(tail);
                    if let Some((header, frame)) = SampleHeader::split(&whole) {
                        // The kernel pads records to a multiple of eight bytes.
                        let copied = frame.len().min(header.len.min(SAMPLE_BYTES) as usize);
                        told(header, &frame[..copied]);
                    }
                }
            });
        }
        lost
    }
}

impl Drop for OpenSamples<'_> {
    fn drop(&mut self) {
        // If this fails, the program notices that its samples are not read, and stops by itself.
        let _stopped = self.samples.ask(0, 0);
    }
}

// aya's maps have no Debug of their own.
impl fmt::Debug for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenSamples<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSamples").field("budget", &self.budget).finish_non_exhaustive()
    }
}
