//! Functions that make the verifier forget what it knows about a number.
//!
//! The verifier follows every path through a program, and merges two paths where they meet with the same facts about every number that
//! still matters. Facts that nothing depends on keep paths apart: which tags came before a header, which limit was the dearest, how a sum came
//! about. If such a number is forgotten, the code behind it is checked once.
//!
//! Numbers that belong together should not be forgotten: if one of two is, the verifier follows combinations that cannot occur.
#![cfg_attr(
    target_arch = "bpf",
    expect(unsafe_code, reason = "one or two instructions that the compiler must not see through")
)]

/// Returns the number, about which the verifier then knows nothing: it does not see that mixing in an unknown number twice changes nothing.
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

/// The number under a mask. The compiler keeps the mask even if it knows that the number has no other bits: the verifier may not know.
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
