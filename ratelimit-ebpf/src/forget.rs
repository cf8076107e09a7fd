//! What the verifier is made to forget.
//!
//! The verifier follows every way through a program, and takes two ways for one where they meet with the same facts about every number that
//! still matters. Facts that nothing depends on keep ways apart: which tags came before a header, which limit was the dearest, how a sum came
//! about. Where such a number is forgotten, everything behind is looked at once.
//!
//! Numbers that belong together are better left alone: who forgets one of two has the verifier follow combinations that cannot happen.
#![cfg_attr(
    target_arch = "bpf",
    expect(unsafe_code, reason = "one or two instructions that the compiler must not see through")
)]

/// The number as it is, of which the verifier knows nothing any more: it does not see that mixing in something unknown twice changes nothing.
#[inline(always)]
pub fn forget(number: u64, unknown: u64) -> u64 {
    #[cfg(target_arch = "bpf")]
    {
        let mut number = number;
        // SAFETY: two instructions on two registers.
        unsafe {
            core::arch::asm!("{0} ^= {1}", "{0} ^= {1}", inout(reg) number, in(reg) unknown, options(pure, nomem, nostack));
        }
        number
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        number ^ unknown ^ unknown
    }
}

/// The number under a mask. The compiler does not leave the mask out where it knows that nothing is beyond it: the verifier may not know.
#[inline(always)]
pub fn masked<const MASK: usize>(number: usize) -> usize {
    #[cfg(target_arch = "bpf")]
    {
        const { assert!(MASK <= i32::MAX as usize, "a mask that fits into an instruction") };
        let mut number = number;
        // SAFETY: one instruction on one register.
        unsafe {
            core::arch::asm!("{0} &= {1}", inout(reg) number, const MASK, options(pure, nomem, nostack));
        }
        // SAFETY: the instruction has left nothing beyond the mask. The compiler is told, because it would check the number otherwise.
        unsafe { core::hint::assert_unchecked(number <= MASK) };
        number
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        number & MASK
    }
}
