//! Frames that are copied for the daemon while somebody looks at the traffic.
//!
//! None of these maps is pinned: the copies of a program are for the daemon that loaded it.

use crate::{
    abi_struct,
    gap::{self, MAX_SHIFT},
};

abi_struct! {
    /// Whether frames are sampled. Written by the daemon, and by a program whose samples nobody reads.
    pub struct Sampling: 8 {
        /// 0 while nobody looks. Otherwise a number that changes ten times a second, so that a CPU with less traffic samples a larger part of it again.
        pub epoch: u32,
        /// Samples that one CPU should not exceed in one epoch.
        pub budget: u32,
    }
}

abi_struct! {
    /// The sampler of one CPU. Only the kernel program uses it.
    pub struct Sampler: 24 {
        /// The state of the random numbers; 0 before the first.
        pub random: u64,
        /// The epoch of this CPU's last frame.
        pub epoch: u32,
        /// Samples in this epoch; `Sampler::due` sets it back to half the budget when the shift rises.
        pub taken: u32,
        /// One frame in two to the power of `shift` is sampled.
        pub shift: u32,
        /// Frames to let pass before the next sample.
        pub gap: u32,
    }
}

abi_struct! {
    /// The header before the bytes of a sampled frame.
    pub struct SampleHeader: 32 {
        /// When the frame was sampled: nanoseconds of the kernel's monotonic clock.
        pub time_ns: u64,
        /// The index of the frame's counter, for its service, reason and fate; see [`slot`](super::counter::slot).
        pub slot: u32,
        /// Length of the frame in bytes; of a frame in several buffers, of the first one.
        pub len: u32,
        /// The number of the interface that the frame came in by.
        pub interface: u32,
        /// The frame stands for two to the power of `shift` frames; with [`REPORTED`], and [`UNDUE`] if it stands for none.
        pub shift: u32,
        /// The program's XDP action on the frame.
        pub action: u32,
        /// 0 if the frame begins with an Ethernet header, 1 if it begins with an IP header.
        pub link: u32,
    }
}

/// The XDP action of a frame that is handed on.
pub const ACTION_PASS: u32 = 2;
/// The XDP action of a frame that is sent back.
pub const ACTION_REPLY: u32 = 3;
/// Bytes of a frame that are copied: enough for the headers of every packet that is parsed.
pub const SAMPLE_BYTES: u32 = 128;

/// The bit of `shift` for a frame that a drop event was sent about.
pub const REPORTED: u32 = 1 << 8;
/// The bit of `shift` for a frame that was copied for that alone: no sample was due, and estimates must not count it.
pub const UNDUE: u32 = 1 << 9;

impl Sampler {
    /// Whether a frame passes without a sample: in this epoch, and with a gap left. Most frames cost no more while somebody looks.
    #[inline(always)]
    pub fn lets_pass(&mut self, epoch: u32) -> bool {
        let passes = self.epoch == epoch && self.gap != 0;
        if passes {
            self.gap -= 1;
        }
        passes
    }

    /// Whether to sample a frame for which [`Sampler::lets_pass`] was false; the answer is the shift: the frame stands for two to its power.
    ///
    /// The gaps between samples have no memory (see [`gap`]), so the sample is unbiased at every moment, also when the shift changes, and no sender
    /// can keep in step with it. The shift rises whenever an epoch has used up its budget, and once more with each further half of it; it falls
    /// by one in each epoch that used less than a quarter. `seed` is called once.
    #[inline(always)]
    pub fn due(&mut self, sampling: Sampling, seed: impl FnOnce() -> u32) -> Option<u32> {
        if self.random == 0 {
            self.random = seed() as u64 | 1 << 32;
        }
        if self.epoch != sampling.epoch {
            self.epoch = sampling.epoch;
            if self.taken < sampling.budget / 4 && self.shift > 0 {
                self.shift -= 1;
                self.gap = self.draw();
            }
            self.taken = 0;
        }
        if self.gap != 0 {
            self.gap -= 1;
            return None;
        }
        let shift = self.shift;
        self.taken += 1;
        if self.taken >= sampling.budget && self.shift < MAX_SHIFT {
            self.shift += 1;
            self.taken = sampling.budget / 2;
        }
        self.gap = self.draw();
        Some(shift)
    }

    /// Draws the gap to the next sample.
    #[inline(always)]
    fn draw(&mut self) -> u32 {
        gap::draw(self.shift, || {
            // Xorshift (Marsaglia 2003): three steps, and never 0 if it was not.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            (self.random >> 32) as u32
        })
    }
}

impl SampleHeader {
    /// How many frames the copy stands for; 0 if it was made for a drop event alone.
    pub fn weight(&self) -> u64 {
        if self.shift & UNDUE != 0 { 0 } else { 1 << (self.shift & 63) }
    }

    /// Whether a drop event was sent about the frame.
    pub fn is_reported(&self) -> bool {
        self.shift & REPORTED != 0
    }

    /// Parses the header of a record, and returns the bytes behind it too.
    pub fn split(record: &[u8]) -> Option<(Self, &[u8])> {
        let (header, frame) = record.split_first_chunk::<{ size_of::<Self>() }>()?;
        let (halves, _) = header.as_chunks::<4>();
        let half = |index: usize| u32::from_ne_bytes(halves[2 + index]);
        let time_ns = u64::from_ne_bytes(*header.first_chunk()?);
        let header = Self {
            time_ns,
            slot: half(0),
            len: half(1),
            interface: half(2),
            shift: half(3),
            action: half(4),
            link: half(5),
        };
        Some((header, frame))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    const QUIET: Sampler = Sampler { random: 0, epoch: 0, taken: 0, shift: 0, gap: 0 };

    /// Runs epochs of the given numbers of frames, and returns for each epoch the samples, and the frames that they stand for.
    fn epochs(sampler: &mut Sampler, from: u32, frames: &[u32]) -> std::vec::Vec<(u32, u64)> {
        let epoch = |(number, frames): (u32, &u32)| {
            let sampling = Sampling { epoch: from + number, budget: 1000 };
            let due = |sampler: &mut Sampler| {
                if sampler.lets_pass(sampling.epoch) { None } else { sampler.due(sampling, || 77) }
            };
            let shifts = (0..*frames).filter_map(|_| due(sampler));
            shifts.fold((0, 0), |(taken, stands), shift| (taken + 1, stands + (1 << shift)))
        };
        (0..).zip(frames).map(epoch).collect()
    }

    #[test]
    fn random_numbers_are_those_of_marsaglia() {
        let mut sampler = QUIET;
        assert_eq!(sampler.due(Sampling { epoch: 1, budget: 1000 }, || 77), Some(0));
        // 21 xorshift steps, one for each digit of a gap.
        assert_eq!(sampler.random, 0x2961_7343_694d_9832);
    }

    #[test]
    fn below_its_budget_every_frame_is_a_sample() {
        let mut sampler = QUIET;
        assert_eq!(epochs(&mut sampler, 1, &[999, 1, 0, 500]), [(999, 999), (1, 1), (0, 0), (500, 500)]);
    }

    #[test]
    fn a_flood_is_sampled_within_a_few_budgets_from_its_first_epoch_on_and_what_samples_stand_for_is_true() {
        let mut sampler = QUIET;
        let flood = epochs(&mut sampler, 1, &[1_000_000; 12]);
        for (taken, stands) in &flood {
            assert!(*taken <= 7_000, "{flood:?}");
            let error = (*stands as f64 - 1e6).abs() / 1e6;
            assert!(error < 0.25, "{flood:?}");
        }
        let all: u64 = flood.iter().map(|(_, stands)| stands).sum();
        assert!((all as f64 - 12e6).abs() < 12e6 * 0.05, "{all}");
        let calm = epochs(&mut sampler, 100, &[100; 30]);
        assert_eq!(calm[29], (100, 100), "every frame again after at most three seconds: {calm:?}");
    }

    #[test]
    fn no_epoch_is_sampled_without_end() {
        let mut sampler = QUIET;
        let [(taken, _)] = epochs(&mut sampler, 1, &[30_000_000])[..] else { panic!() };
        // 16 steps of half a budget, then one in 65 536.
        assert!(taken <= 1000 + 15 * 500 + 30_000_000 / 65_536 + 500, "{taken}");
    }

    #[test]
    fn no_sample_says_that_it_stands_for_more_frames_than_gaps_are_drawn_for() {
        let mut sampler = QUIET;
        let sampling = Sampling { epoch: 1, budget: 1 };
        let shifts = (0..4_000_000).filter_map(|_| sampler.due(sampling, || 77));
        assert_eq!(shifts.max(), Some(MAX_SHIFT), "with a budget of one sample");
    }

    #[test]
    fn a_record_is_split_where_the_frame_begins() {
        let mut record = std::vec![0_u8; 34];
        record[0] = 7;
        record[8] = 9;
        record[32] = 0x45;
        let (header, frame) = SampleHeader::split(&record).unwrap();
        assert_eq!((header.time_ns, header.slot, frame), (7, 9, &[0x45, 0][..]));
        assert!(SampleHeader::split(&record[..31]).is_none());
    }

    #[test]
    fn a_copy_for_a_drop_event_stands_for_no_frame() {
        let header =
            |shift| SampleHeader { time_ns: 0, slot: 0, len: 0, interface: 0, shift, action: 0, link: 0 };
        for (shift, weight, reported) in
            [(0, 1, false), (5, 32, false), (5 | REPORTED, 32, true), (UNDUE | REPORTED, 0, true)]
        {
            assert_eq!((header(shift).weight(), header(shift).is_reported()), (weight, reported));
        }
    }

    #[test]
    fn samples_become_denser_after_an_epoch_that_used_less_than_a_quarter_of_its_budget() {
        for (taken, shift) in [(0, 4), (249, 4), (250, 5), (1_000, 5)] {
            let mut sampler = Sampler { random: 1 << 32, epoch: 1, taken, shift: 5, gap: 3 };
            let _ = sampler.due(Sampling { epoch: 2, budget: 1_000 }, || 77);
            assert_eq!(sampler.shift, shift, "{taken}");
        }
    }
}
