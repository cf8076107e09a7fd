//! How much of the stack each kernel program takes along its deepest chain of calls, as the strictest kernels count.

use std::collections::{BTreeMap, BTreeSet};

use aya_obj::{Object, generated::bpf_insn};

/// What a chain of calls may take.
pub const MAX_STACK: u32 = 512;
/// Kernels before 6.9 round each frame up to a multiple of this; later ones to half of it.
pub const FRAME_STEP: u32 = 32;

const STACK_POINTER: u8 = 10;
const CALL: u8 = 0x85;
/// In the source register of a call: of a function of the program.
const PSEUDO_CALL: u8 = 1;
const MOVE: u8 = 0xbf;
const ADD_NUMBER: u8 = 0x07;

/// Each program of an object, with the bytes that its deepest chain of calls takes.
pub fn depths(object: &[u8]) -> BTreeMap<String, u32> {
    let mut object = Object::parse(object).expect("a kernel object");
    let sections = object.functions.keys().map(|(section, _)| *section).collect();
    object.relocate_calls(&sections).expect("calls between its functions");
    let depth = |(name, program): (&String, &aya_obj::Program)| {
        let whole = &object.functions[&program.function_key()].instructions;
        (name.clone(), deepest(whole, 0))
    };
    object.programs.iter().map(depth).collect()
}

/// The depth of the function that begins at an instruction, with what it calls.
fn deepest(whole: &[bpf_insn], start: usize) -> u32 {
    let end = starts(whole).into_iter().find(|other| *other > start).unwrap_or(whole.len());
    let below = (start..end).filter_map(|at| called(whole, at)).map(|called| deepest(whole, called)).max();
    frame(&whole[start..end]).max(1).next_multiple_of(FRAME_STEP) + below.unwrap_or(0)
}

/// The instructions at which functions begin.
fn starts(whole: &[bpf_insn]) -> BTreeSet<usize> {
    (0..whole.len()).filter_map(|at| called(whole, at)).collect()
}

/// The function that the instruction calls, if it calls one.
fn called(whole: &[bpf_insn], at: usize) -> Option<usize> {
    let calls = whole[at].code == CALL && whole[at].src_reg() == PSEUDO_CALL;
    calls.then(|| usize::try_from(at as i64 + 1 + i64::from(whole[at].imm)).expect("a place in the program"))
}

/// The bytes below the stack pointer that a function reads, writes or takes the address of.
fn frame(function: &[bpf_insn]) -> u32 {
    let direct = function.iter().map(|one| {
        // Loads have the address in their source, everything that writes to memory in its destination.
        let base = match one.code & 7 {
            1 => one.src_reg(),
            2 | 3 => one.dst_reg(),
            _ => 0,
        };
        if base == STACK_POINTER { i32::from(one.off) } else { 0 }
    });
    let addresses = function.windows(2).map(|pair| {
        let (copy, add) = (&pair[0], &pair[1]);
        let is_address = copy.code == MOVE
            && copy.src_reg() == STACK_POINTER
            && add.code == ADD_NUMBER
            && add.dst_reg() == copy.dst_reg();
        if is_address { add.imm } else { 0 }
    });
    direct.chain(addresses).map(|offset| offset.min(0).unsigned_abs()).max().unwrap_or(0)
}
