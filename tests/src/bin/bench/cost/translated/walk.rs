//! One packet's way through a program: what each instruction does to registers and memory.

use anyhow::{Context, Result, bail, ensure};
use rustix::time::{ClockId, clock_gettime};

use super::{ADD, CALL, Instruction, LOAD_WIDE, Passage, Translated, memory::Memory};

/// More than any packet takes.
const LONGEST: usize = 100_000;
const RETURN: u8 = 0x95;
const GO: u8 = 0x05;
const GO_FAR: u8 = 0x06;
/// The register of what is returned, of the first argument, and of the stack.
const RETURNED: usize = 0;
const FIRST: usize = 1;
const STACK: usize = 10;
/// What a function leaves as it was.
const KEPT: std::ops::Range<usize> = 6..10;

/// The kernel's clocks at one moment. They stand still during a walk, which takes a second and not a microsecond: what is remembered for some
/// milliseconds would be over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clocks {
    exact_ns: u64,
    coarse_ns: u64,
    boot_ns: u64,
}

struct Walk<'w> {
    program: &'w Translated,
    memory: &'w mut Memory,
    clocks: Clocks,
    registers: [u64; 11],
    at: usize,
    /// Where calls return to, with the registers that they keep.
    callers: Vec<(usize, [u64; 4])>,
    done: usize,
    calls: Vec<String>,
}

/// Walks from the first instruction to the verdict.
pub(super) fn once(program: &Translated, memory: &mut Memory, clocks: Clocks) -> Result<Passage> {
    let mut registers = [0; 11];
    registers[FIRST] = super::memory::CONTEXT;
    registers[STACK] = Memory::stack_of(0)?;
    let mut walk =
        Walk { program, memory, clocks, registers, at: 0, callers: Vec::new(), done: 0, calls: Vec::new() };
    loop {
        let at = walk.at;
        if let Some(verdict) = walk.step().with_context(|| format!("at instruction {at}"))? {
            return Ok(Passage { verdict, instructions: walk.done, calls: walk.calls });
        }
        ensure!(walk.done < LONGEST, "a packet that takes {LONGEST} instructions");
    }
}

impl Walk<'_> {
    /// One instruction; the verdict, if it was the last one.
    fn step(&mut self) -> Result<Option<u32>> {
        let one = *self.program.instructions.get(self.at).context("there is no such instruction")?;
        let here = self.at;
        self.at += 1;
        self.done += 1;
        match one.code {
            LOAD_WIDE => self.load_wide(one)?,
            CALL if one.source == 1 => {
                self.callers.push((self.at, self.kept()));
                self.registers[STACK] = Memory::stack_of(self.callers.len())?;
                self.go(one.offset.into())?;
            }
            CALL => self.registers[RETURNED] = self.call(here)?,
            RETURN => match self.callers.pop() {
                None => return Ok(Some(self.registers[RETURNED] as u32)),
                Some((back, kept)) => {
                    self.at = back;
                    self.registers[KEPT].copy_from_slice(&kept);
                    self.registers[STACK] = Memory::stack_of(self.callers.len())?;
                }
            },
            GO => self.go(one.offset.into())?,
            GO_FAR => self.go(one.immediate)?,
            code => match code & 7 {
                1 => {
                    let len = length(code);
                    let loaded = self.memory.load(self.address(one.source, one), len)?;
                    let is_signed = code >> 5 == 4;
                    self.registers[one.destination] =
                        if is_signed { extended(loaded, len * 8) } else { loaded };
                }
                2 => self.store(one, extended(one.immediate as u32 as u64, 32))?,
                3 if code >> 5 == 6 => self.exchange(one)?,
                3 => self.store(one, self.registers[one.source])?,
                4 | 7 => {
                    self.registers[one.destination] =
                        calculated(one, self.registers[one.destination], self.operand(one))?;
                }
                _ => {
                    let (left, right) = (self.registers[one.destination], self.operand(one));
                    if is_so(one.code, left, right)? {
                        self.go(one.offset.into())?;
                    }
                }
            },
        }
        Ok(None)
    }

    fn kept(&self) -> [u64; 4] {
        std::array::from_fn(|at| self.registers[KEPT.start + at])
    }

    fn go(&mut self, by: i32) -> Result<()> {
        self.at = self.at.checked_add_signed(by as isize).context("a jump to nowhere")?;
        Ok(())
    }

    fn operand(&self, one: Instruction) -> u64 {
        if one.code & 8 != 0 { self.registers[one.source] } else { extended(one.immediate as u32 as u64, 32) }
    }

    fn address(&self, register: usize, one: Instruction) -> u64 {
        self.registers[register].wrapping_add_signed(one.offset.into())
    }

    fn load_wide(&mut self, one: Instruction) -> Result<()> {
        let upper = self.program.instructions.get(self.at).context("half an instruction")?.immediate as u32;
        self.at += 1;
        let lower = one.immediate as u32;
        self.registers[one.destination] = match one.source {
            0 => u64::from(upper) << 32 | u64::from(lower),
            1 => self.memory.map(lower)?,
            2 => self.memory.first_value(lower)? + u64::from(upper),
            other => bail!("a load of kind {other}"),
        };
        Ok(())
    }

    fn store(&mut self, one: Instruction, number: u64) -> Result<()> {
        self.memory.store(self.address(one.destination, one), length(one.code), number)
    }

    /// Reads and writes at once, for all CPUs.
    fn exchange(&mut self, one: Instruction) -> Result<()> {
        let (address, len) = (self.address(one.destination, one), length(one.code));
        let (before, operand) = (self.memory.load(address, len)?, self.registers[one.source]);
        const FETCH: i32 = 1;
        const COMPARE: i32 = 0xf1;
        let after = match one.immediate & !FETCH {
            0x00 => before.wrapping_add(operand),
            0x40 => before | operand,
            0x50 => before & operand,
            0xa0 => before ^ operand,
            0xe0 => operand,
            0xf0 if low(self.registers[RETURNED], len * 8) == before => operand,
            0xf0 => before,
            other => bail!("an exchange of kind {other:#x}"),
        };
        self.memory.store(address, len, after)?;
        if one.immediate == COMPARE {
            self.registers[RETURNED] = before;
        } else if one.immediate & FETCH != 0 {
            self.registers[one.source] = before;
        }
        Ok(())
    }

    /// What a helper returns.
    fn call(&mut self, here: usize) -> Result<u64> {
        let name = self.program.helpers.get(&here).context("a helper without a name")?.clone();
        let (map, key) = (self.registers[FIRST], self.registers[FIRST + 1]);
        self.calls.push(name.clone());
        match name.as_str() {
            // The verifier writes out how to get from an entry to its value.
            "__htab_map_lookup_elem" => self.memory.look_up(map, key, self.distance_to_value()),
            "bpf_map_lookup_elem" => self.memory.look_up(map, key, 0),
            "bpf_ktime_get_ns" => Ok(self.clocks.exact_ns),
            "bpf_ktime_get_coarse_ns" => Ok(self.clocks.coarse_ns),
            "bpf_ktime_get_boot_ns" => Ok(self.clocks.boot_ns),
            "bpf_xdp_get_buff_len" => Ok(self.memory.packet_len()),
            // Whoever is told of drops is not there.
            "bpf_ringbuf_reserve" => Ok(0),
            other if other.ends_with("lookup_elem") => self.memory.look_up(map, key, 0),
            other if other.ends_with("update_elem") => Ok(0),
            other => bail!("no packet of these paths should need {other}"),
        }
    }

    fn distance_to_value(&self) -> u64 {
        const SOON: usize = 8;
        let next = self.program.instructions.iter().skip(self.at).take(SOON);
        let added =
            next.filter(|one| one.code == ADD && one.destination == RETURNED).map(|one| one.immediate);
        added.map(|by| by as u64).next().unwrap_or(0)
    }
}

impl Clocks {
    pub(super) fn now() -> Self {
        Self {
            exact_ns: now(ClockId::Monotonic),
            // A program that keeps what it has read keeps it anew when the clock has moved.
            coarse_ns: now(ClockId::MonotonicCoarse) + 1,
            boot_ns: now(ClockId::Boottime),
        }
    }
}

fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Bytes that an instruction loads or stores.
fn length(code: u8) -> usize {
    [4, 2, 1, 8][usize::from(code >> 3 & 3)]
}

fn low(number: u64, bits: usize) -> u64 {
    if bits >= 64 { number } else { number & ((1 << bits) - 1) }
}

/// A number of so many bits with its sign.
fn extended(number: u64, bits: usize) -> u64 {
    let unused = 64 - bits;
    ((number << unused) as i64 >> unused) as u64
}

fn calculated(one: Instruction, left: u64, right: u64) -> Result<u64> {
    let is_wide = one.code & 7 == 7;
    let bits = if is_wide { 64 } else { 32 };
    let (left, right) = (low(left, bits), low(right, bits));
    let by = (right & (bits as u64 - 1)) as u32;
    let result = match one.code >> 4 {
        0x0 => left.wrapping_add(right),
        0x1 => left.wrapping_sub(right),
        0x2 => left.wrapping_mul(right),
        0x3 if one.offset == 0 => left.checked_div(right).unwrap_or(0),
        0x4 => left | right,
        0x5 => left & right,
        0x6 => left << by,
        0x7 => left >> by,
        0x8 => left.wrapping_neg(),
        0x9 if one.offset == 0 => left.checked_rem(right).unwrap_or(left),
        0xa => left ^ right,
        // An offset of 8, 16 or 32 brings the sign along; -1 says that the address is one of this CPU.
        0xb if one.offset > 0 && one.code & 8 != 0 => extended(right, one.offset as usize),
        0xb => right,
        0xc => (extended(left, bits) as i64 >> by) as u64,
        0xd => return swapped(one, left),
        other => bail!("no such calculation: {other:#x}"),
    };
    Ok(low(result, bits))
}

/// The bytes of a number in the other order, or in the one of memory.
fn swapped(one: Instruction, number: u64) -> Result<u64> {
    let bits = one.immediate as usize;
    let number = low(number, bits);
    let is_other = one.code & 7 == 7 || one.code & 8 != 0;
    Ok(match (is_other, bits) {
        (false, _) => number,
        (true, 16) => u64::from((number as u16).swap_bytes()),
        (true, 32) => u64::from((number as u32).swap_bytes()),
        (true, 64) => number.swap_bytes(),
        _ => bail!("a swap of {bits} bits"),
    })
}

fn is_so(code: u8, left: u64, right: u64) -> Result<bool> {
    let bits = if code & 7 == 5 { 64 } else { 32 };
    let (left, right) = (low(left, bits), low(right, bits));
    let (signed_left, signed_right) = (extended(left, bits) as i64, extended(right, bits) as i64);
    Ok(match code >> 4 {
        0x1 => left == right,
        0x2 => left > right,
        0x3 => left >= right,
        0x4 => left & right != 0,
        0x5 => left != right,
        0x6 => signed_left > signed_right,
        0x7 => signed_left >= signed_right,
        0xa => left < right,
        0xb => left <= right,
        0xc => signed_left < signed_right,
        0xd => signed_left <= signed_right,
        other => bail!("no such comparison: {other:#x}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::translated::tests::program;

    fn walked(of: &[(u8, usize, usize, i16, i32)]) -> Passage {
        let mut memory = Memory::new(&[0x45, 0x00, 0x01, 0x02], 0, 0);
        once(&program(of), &mut memory, Clocks::default()).unwrap()
    }

    #[test]
    fn a_loop_counts_each_time_it_goes_round() {
        // r0 = 0; do r0 += 1 while r0 < 5
        let passage =
            walked(&[(0xb7, 0, 0, 0, 0), (0x07, 0, 0, 0, 1), (0xa5, 0, 0, -2, 5), (0x95, 0, 0, 0, 0)]);
        assert_eq!((passage.verdict, passage.instructions), (5, 1 + 5 * 2 + 1));
    }

    #[test]
    fn a_function_has_a_stack_of_its_own_and_gives_registers_back() {
        // r6 = 7; [r10 - 8] = 1; call f; r0 += r6; r0 += [r10 - 8]; f: r6 = 100; [r10 - 8] = 50; r0 = 3
        let passage = walked(&[
            (0xb7, 6, 0, 0, 7),
            (0x7a, 10, 0, -8, 1),
            (0x85, 0, 1, 4, 0),
            (0x0f, 0, 6, 0, 0),
            (0x79, 1, 10, -8, 0),
            (0x0f, 0, 1, 0, 0),
            (0x95, 0, 0, 0, 0),
            (0xb7, 6, 0, 0, 100),
            (0x7a, 10, 0, -8, 50),
            (0xb7, 0, 0, 0, 3),
            (0x95, 0, 0, 0, 0),
        ]);
        assert_eq!((passage.verdict, passage.instructions), (3 + 7 + 1, 11));
    }

    #[test]
    fn narrow_numbers_wrap_and_have_signs_of_their_own() {
        // w0 = -1; w0 s>>= 31; if w0 s< 0 skip; w0 = 9
        let passage = walked(&[
            (0xb4, 0, 0, 0, -1),
            (0xc4, 0, 0, 0, 31),
            (0xc6, 0, 0, 1, 0),
            (0xb4, 0, 0, 0, 9),
            (0x95, 0, 0, 0, 0),
        ]);
        assert_eq!((passage.verdict, passage.instructions), (u32::MAX, 4));
    }
}
