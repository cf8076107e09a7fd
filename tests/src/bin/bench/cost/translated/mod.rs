//! A loaded program as the kernel has translated it, walked through instruction by instruction against its live maps.
//!
//! ```text
//! bpftool prog dump xlated -> instructions -> walk -> how many were executed
//! bpftool map lookup       -> values ------->
//! ```
//!
//! Machines without hardware counters cannot count what a CPU executes; this counts what it is given to execute. What the verifier has put in place of a
//! helper is counted, a helper that is called counts as one.

mod memory;
mod walk;

use std::{collections::HashMap, fs};

use anyhow::{Context, Result, ensure};
use ratelimit_tests::bpffs::Scratch;

use self::{memory::Memory, walk::Clocks};
use crate::shell;

/// Bytes of an instruction.
const WORD: usize = 8;
/// An instruction of two words, that loads a number, or the address of a map.
const LOAD_WIDE: u8 = 0x18;
const CALL: u8 = 0x85;
/// Adds a number to a register.
const ADD: u8 = 0x07;

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    destination: usize,
    source: usize,
    offset: i16,
    immediate: i32,
}

/// A program, with the names of the helpers that it calls.
#[derive(Debug)]
pub(super) struct Translated {
    instructions: Vec<Instruction>,
    /// By the number of the instruction that calls.
    helpers: HashMap<usize, String>,
}

/// What a packet took.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Passage {
    pub(super) verdict: u32,
    pub(super) instructions: usize,
    /// Helpers that were called, in order.
    pub(super) calls: Vec<String>,
}

impl Translated {
    /// The program with this number.
    pub(super) fn of(program: u32) -> Result<Self> {
        let scratch = Scratch::new();
        let path = scratch.dir().join("translated");
        let (id, file) = (program.to_string(), path.to_string_lossy().into_owned());
        shell::run("bpftool", ["prog", "dump", "xlated", "id", &id, "file", &file])?;
        let bytes = fs::read(&path).with_context(|| format!("bpftool did not write {file}"))?;
        let text = shell::run("bpftool", ["prog", "dump", "xlated", "id", &id])?;
        let translated = Self { instructions: instructions(&bytes), helpers: helpers(&text) };
        ensure!(!translated.instructions.is_empty(), "the kernel does not show program {id}");
        Ok(translated)
    }

    /// Walks a frame through it on a CPU. The first time, values are as the last real packet has left them and a tick of the clock may have gone by; what
    /// is counted is the second time, in the same tick.
    pub(super) fn walk(&self, frame: &[u8], cpu: usize) -> Result<Passage> {
        let clocks = Clocks::now();
        let mut memory = Memory::new(frame, cpu, self.values_at()?);
        walk::once(self, &mut memory, clocks)?;
        memory.begin_again(frame);
        walk::once(self, &mut memory, clocks)
    }

    /// Where the values of an array begin, behind what the kernel keeps in front of them: it is in every lookup that the verifier has written out.
    fn values_at(&self) -> Result<u64> {
        let found = self.instructions.windows(3).find_map(|three| {
            let is_lookup = three[0].code == LOAD_WIDE && three[0].source == 1 && three[2].code == ADD;
            is_lookup.then_some(three[2].immediate)
        });
        u64::try_from(found.context("no lookup in an array is written out")?).context("no such place")
    }
}

fn instructions(bytes: &[u8]) -> Vec<Instruction> {
    let one = |word: &[u8]| Instruction {
        code: word[0],
        destination: usize::from(word[1] & 15),
        source: usize::from(word[1] >> 4),
        offset: i16::from_le_bytes([word[2], word[3]]),
        immediate: i32::from_le_bytes([word[4], word[5], word[6], word[7]]),
    };
    bytes.chunks_exact(WORD).map(one).collect()
}

/// `  26: (85) call bpf_ktime_get_coarse_ns#269552`
fn helpers(text: &str) -> HashMap<usize, String> {
    let call = |line: &str| {
        let (number, rest) = line.trim().split_once(": (85) call ")?;
        Some((number.parse().ok()?, rest.split('#').next()?.to_owned()))
    };
    text.lines().filter_map(call).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of these instructions.
    pub(super) fn program(of: &[(u8, usize, usize, i16, i32)]) -> Translated {
        let one = |&(code, destination, source, offset, immediate): &_| Instruction {
            code,
            destination,
            source,
            offset,
            immediate,
        };
        Translated { instructions: of.iter().map(one).collect(), helpers: HashMap::new() }
    }

    #[test]
    fn an_instruction_is_read_from_its_eight_bytes() {
        let expected = Instruction { code: 0x07, destination: 2, source: 10, offset: -1, immediate: -64 };
        assert_eq!(instructions(&[0x07, 0xa2, 0xff, 0xff, 0xc0, 0xff, 0xff, 0xff]), [expected]);
    }

    #[test]
    fn helpers_are_known_by_the_number_of_the_instruction_that_calls_them() {
        let text = "u32 f():\n; fun()\n  26: (85) call bpf_ktime_get_ns#269552\n  38: (85) call pc+4706#bpf_prog_7_f\n";
        let found = helpers(text);
        assert_eq!((found[&26].as_str(), found.len()), ("bpf_ktime_get_ns", 2));
    }
}
