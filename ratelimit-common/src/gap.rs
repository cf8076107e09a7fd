//! The gaps of a sampler: how many frames pass before the next sample.
//!
//! One frame in two to the power of `shift` is sampled, independently of those before it. Tossing a coin for every frame costs every frame a
//! random number; drawing the length of the gap to the next sample costs a subtraction. The length G of a gap is geometric: with q = 1 - 2^-shift,
//! P(G >= n) = q^n. Its binary digits are independent of each other, and digit i is 1 with probability q^(2^i) / (1 + q^(2^i)),
//! so a length is drawn digit by digit, without a logarithm. A gap has no memory: if it is discarded at any moment and drawn anew with another shift,
//! the sample stays unbiased.

/// The largest shift: one frame in 65 536. At 100 million frames a second that is 1500 samples.
pub const MAX_SHIFT: u32 = 16;
/// Binary digits of a gap. At the largest shift, one gap in 10^13 would have more.
const DIGITS: usize = 21;

/// The probability that a digit is 1, for each shift and digit, in units of 2^-32.
static ONES: [[u32; DIGITS]; MAX_SHIFT as usize + 1] = ones();

/// Computes the probabilities. Example: at shift 1, q is 1/2. Digit 0 is 1 with probability 1/3, because odd gaps are half as likely as even ones; digit 1 with 1/5.
const fn ones() -> [[u32; DIGITS]; MAX_SHIFT as usize + 1] {
    let mut ones = [[0; DIGITS]; MAX_SHIFT as usize + 1];
    // At shift 0 every frame is sampled, and every gap is 0.
    let mut shift = 1;
    while shift < ones.len() {
        // q^(2^digit), in units of 2^-64.
        let mut power = (1_u128 << 64) - (1 << (64 - shift));
        let mut digit = 0;
        while digit < DIGITS {
            ones[shift][digit] = ((power << 32) / ((1 << 64) + power)) as u32;
            power = (power * power) >> 64;
            digit += 1;
        }
        shift += 1;
    }
    ones
}

/// Draws a gap; `random` returns 32 random bits at each call.
#[inline(always)]
pub fn draw(shift: u32, mut random: impl FnMut() -> u32) -> u32 {
    let mut gap = 0;
    for (digit, one) in ONES[shift.min(MAX_SHIFT) as usize].iter().enumerate() {
        gap |= ((random() < *one) as u32) << digit;
    }
    gap
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{vec, vec::Vec};

    /// Knuth's generator, independent of the sampler's own.
    fn randoms() -> impl FnMut() -> u32 {
        let mut state = 0x1234_5678_9abc_def0_u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        }
    }

    #[test]
    fn the_table_that_the_compiler_computes_is_the_one_that_is_computed_here() {
        assert_eq!(ones(), ONES);
    }

    #[test]
    fn the_digits_of_a_gap_add_up_to_its_mean_at_every_shift() {
        for (shift, ones) in ONES.iter().enumerate() {
            let digits = ones.iter().enumerate();
            let mean: f64 =
                digits.map(|(digit, one)| f64::from(*one) / 2_f64.powi(32) * 2_f64.powi(digit as i32)).sum();
            // One frame in 2^shift is sampled, so 2^shift - 1 frames pass between two samples on average.
            let truth = 2_f64.powi(shift as i32) - 1.0;
            assert!((mean - truth).abs() <= truth * 1e-7, "shift {shift}: {mean}");
        }
    }

    #[test]
    fn gaps_are_as_long_as_tossing_a_coin_for_every_frame_would_make_them() {
        let mut random = randoms();
        for shift in [1, 2, 5, 9] {
            let q = 1.0 - 0.5_f64.powi(shift as i32);
            let gaps: Vec<u32> = (0..100_000).map(|_| draw(shift, &mut random)).collect();
            // Kolmogorov-Smirnov: a correct generator exceeds this bound once in ten thousand runs.
            let bound = 2.3 / (gaps.len() as f64).sqrt();
            for n in (0..20).map(|step| (step * (1 << shift)) / 4) {
                let share = gaps.iter().filter(|gap| **gap >= n).count() as f64 / gaps.len() as f64;
                assert!(
                    (share - q.powi(n as i32)).abs() < bound,
                    "shift {shift}: {share} of gaps are {n} or longer"
                );
            }
        }
    }

    #[test]
    fn every_frame_is_taken_at_shift_0_and_no_shift_is_too_long() {
        let mut random = randoms();
        let gaps: Vec<u32> = (0..100).map(|_| draw(0, &mut random)).collect();
        assert_eq!(gaps, vec![0; 100]);
        assert_eq!(draw(u32::MAX, || 0), (1 << DIGITS) - 1, "the longest, at the longest shift");
    }

    #[test]
    fn no_random_number_makes_a_gap_at_shift_0() {
        assert_eq!([0, 1, u32::MAX].map(|random| draw(0, || random)), [0; 3]);
    }
}
