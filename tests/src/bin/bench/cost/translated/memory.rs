//! What a walked program reaches by address: its packet, its stack, and copies of map values, which are looked up when they are first touched. What it
//! writes stays here.

use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::shell;

/// Addresses are made up: the upper bits say of what.
const PACKET: u64 = 0x1000_0000_0000;
pub(super) const CONTEXT: u64 = 0x1100_0000_0000;
const STACK: u64 = 0x1200_0000_0000;
const ENTRIES: u64 = 0x1300_0000_0000;
/// What the kernel knows about the interface.
const DEVICE: u64 = 0x1400_0000_0000;
const OF_CPUS: u64 = 0x2000_0000_0000;
const MAPS: u64 = 0x7000_0000_0000;
const REGION: u64 = 1 << 40;
const PER_MAP: u32 = 36;
const PER_VALUE: u32 = 32;
/// The kernel's own variables, which are in the last two gigabytes.
const KERNEL: u64 = 0xffff_ffff_0000_0000;
/// The only one that is read is a clock. Its ticks do not go on here.
const TICK: u64 = 1;
/// A function's part of the stack, and how deep calls go.
const FRAME: u64 = 512;
const DEPTH: usize = 9;

/// What is known of a map.
#[derive(Clone, Debug)]
struct Table {
    id: u32,
    kind: String,
    key_len: usize,
    value_len: usize,
}

/// Which map by its number, and which key.
type Place = (u32, Vec<u8>);

pub(super) struct Memory {
    packet: Vec<u8>,
    stack: Vec<u8>,
    cpu: usize,
    values_at: u64,
    tables: Vec<Table>,
    values: HashMap<Place, Option<Vec<u8>>>,
    /// Values of this CPU that have an address.
    of_cpu: Vec<Place>,
    /// Entries of hashes that have one, and how far from it their value is.
    entries: Vec<(u64, Place)>,
}

/// What is at an address.
enum Found {
    Packet(usize),
    Stack(usize),
    Value(Place, usize),
    /// A number that is not to be changed.
    Fixed(u64),
}

impl Memory {
    pub(super) fn new(frame: &[u8], cpu: usize, values_at: u64) -> Self {
        Self {
            packet: frame.to_vec(),
            stack: vec![0; FRAME as usize * DEPTH],
            cpu,
            values_at,
            tables: Vec::new(),
            values: HashMap::new(),
            of_cpu: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// The next packet; values stay.
    pub(super) fn begin_again(&mut self, frame: &[u8]) {
        self.packet = frame.to_vec();
        self.entries.clear();
    }

    pub(super) fn packet_len(&self) -> u64 {
        self.packet.len() as u64
    }

    /// The upper end of the stack of a function so many calls deep.
    pub(super) fn stack_of(depth: usize) -> Result<u64> {
        ensure!(depth < DEPTH, "calls go too deep");
        Ok(STACK + FRAME * (depth as u64 + 1))
    }

    /// The address of a map.
    pub(super) fn map(&mut self, id: u32) -> Result<u64> {
        let at = match self.tables.iter().position(|table| table.id == id) {
            Some(at) => at,
            None => {
                self.tables.push(Table::of(id)?);
                self.tables.len() - 1
            }
        };
        Ok(MAPS + ((at as u64) << PER_MAP))
    }

    /// The address of a map's first value.
    pub(super) fn first_value(&mut self, id: u32) -> Result<u64> {
        Ok(self.map(id)? + self.values_at)
    }

    /// What a lookup by a helper returns: an address, or 0. In a hash, the value is so far behind the address.
    pub(super) fn look_up(&mut self, map: u64, key: u64, behind: u64) -> Result<u64> {
        let table = self.table(map)?;
        let bytes: Result<Vec<u8>> =
            (0..table.key_len as u64).map(|at| Ok(self.load(key + at, 1)? as u8)).collect();
        let bytes = bytes?;
        if self.value(&table, &bytes)?.is_none() {
            return Ok(0);
        }
        let index = || bytes.iter().rev().fold(0, |index, byte| index << 8 | u64::from(*byte));
        match table.kind.as_str() {
            "array" => Ok(map + self.values_at + index() * table.stride()),
            "percpu_array" => Ok(self.address_of_cpu((table.id, bytes))),
            _ => {
                self.entries.push((behind, (table.id, bytes)));
                Ok(ENTRIES + ((self.entries.len() as u64 - 1) << PER_VALUE))
            }
        }
    }

    pub(super) fn load(&mut self, address: u64, len: usize) -> Result<u64> {
        let bytes = match self.find(address, len)? {
            Found::Packet(at) => self.packet.get(at..at + len),
            Found::Stack(at) => self.stack.get(at..at + len),
            Found::Value(place, at) => {
                self.values.get(&place).and_then(Option::as_ref).and_then(|value| value.get(at..at + len))
            }
            Found::Fixed(number) => return Ok(number),
        };
        let bytes = bytes.with_context(|| format!("nothing to load at {address:#x}"))?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(super) fn store(&mut self, address: u64, len: usize, number: u64) -> Result<()> {
        let bytes = match self.find(address, len)? {
            Found::Packet(at) => self.packet.get_mut(at..at + len),
            Found::Stack(at) => self.stack.get_mut(at..at + len),
            Found::Value(place, at) => self
                .values
                .get_mut(&place)
                .and_then(Option::as_mut)
                .and_then(|value| value.get_mut(at..at + len)),
            // The program notes that an entry was used, and every entry here counts as used.
            Found::Fixed(_) => return Ok(()),
        };
        let bytes = bytes.with_context(|| format!("nothing to store to at {address:#x}"))?;
        bytes.copy_from_slice(&number.to_le_bytes()[..len]);
        Ok(())
    }

    fn find(&mut self, address: u64, len: usize) -> Result<Found> {
        let within = |base: u64| (address >= base && address < base + REGION).then(|| address - base);
        if let Some(at) = within(PACKET) {
            return Ok(Found::Packet(at as usize));
        }
        if let Some(at) = within(STACK) {
            return Ok(Found::Stack(at as usize));
        }
        if let Some(at) = within(CONTEXT) {
            return self.context(at);
        }
        if within(DEVICE).is_some() {
            // Pointers lead on to more of it; numbers are those of the first interface.
            return Ok(Found::Fixed(if len == 8 { DEVICE } else { 1 }));
        }
        if let Some(at) = within(ENTRIES) {
            let (behind, place) = self.entries.get((at >> PER_VALUE) as usize).context("no such entry")?;
            let at = at & ((1 << PER_VALUE) - 1);
            // In front of the key is what the kernel keeps of an entry: here, that it was used lately.
            return Ok(at
                .checked_sub(*behind)
                .map_or(Found::Fixed(1), |at| Found::Value(place.clone(), at as usize)));
        }
        if let Some(at) = within(OF_CPUS) {
            let place = self.of_cpu.get((at >> PER_VALUE) as usize).context("no such value")?;
            return Ok(Found::Value(place.clone(), (at & ((1 << PER_VALUE) - 1)) as usize));
        }
        if address >= KERNEL {
            return Ok(Found::Fixed(TICK));
        }
        ensure!(address >= MAPS, "nothing is at {address:#x}");
        self.in_map(address)
    }

    /// `struct xdp_buff`: where the packet begins and ends, twice more where it begins, who brought it, its room.
    fn context(&self, at: u64) -> Result<Found> {
        Ok(Found::Fixed(match at {
            0 | 16 | 24 => PACKET,
            8 => PACKET + self.packet_len(),
            32 | 40 => DEVICE,
            48 => 4_096,
            52 => 0,
            _ => bail!("a packet has nothing at {at}"),
        }))
    }

    fn in_map(&mut self, address: u64) -> Result<Found> {
        let table = self.table(address)?;
        let at = (address - MAPS) & ((1 << PER_MAP) - 1);
        let at = at.checked_sub(self.values_at).context("in front of a map's values")?;
        let key = |index: u64| (index as u32).to_le_bytes().to_vec();
        match table.kind.as_str() {
            "percpu_array" => Ok(Found::Fixed({
                let bytes = key(at / 8);
                self.value(&table, &bytes)?;
                self.address_of_cpu((table.id, bytes))
            })),
            "array_of_maps" => {
                let inner = self.value(&table, &key(at / 8))?.context("no such inner map")?;
                let id = inner.iter().take(4).rev().fold(0, |id, byte| id << 8 | u32::from(*byte));
                Ok(Found::Fixed(self.map(id)?))
            }
            "array" => {
                let bytes = key(at / table.stride());
                self.value(&table, &bytes)?;
                Ok(Found::Value((table.id, bytes), (at % table.stride()) as usize))
            }
            other => bail!("a program reads a map of kind {other} by address"),
        }
    }

    fn table(&self, address: u64) -> Result<Table> {
        let at = address.checked_sub(MAPS).map(|at| (at >> PER_MAP) as usize);
        at.and_then(|at| self.tables.get(at)).cloned().with_context(|| format!("no map is at {address:#x}"))
    }

    fn address_of_cpu(&mut self, place: Place) -> u64 {
        let known = self.of_cpu.iter().position(|known| *known == place);
        let at = known.unwrap_or_else(|| {
            self.of_cpu.push(place);
            self.of_cpu.len() - 1
        });
        OF_CPUS + ((at as u64) << PER_VALUE)
    }

    /// A value as it is by now: the kernel's, until the program writes to it.
    fn value(&mut self, table: &Table, key: &[u8]) -> Result<Option<&[u8]>> {
        let place = (table.id, key.to_vec());
        if !self.values.contains_key(&place) {
            let value = table.look_up(key, self.cpu)?;
            self.values.insert(place.clone(), value);
        }
        Ok(self.values[&place].as_deref())
    }
}

impl Table {
    fn of(id: u32) -> Result<Self> {
        let said = bpftool(&["map", "show", "id", &id.to_string()])?;
        let number =
            |key: &str| said[key].as_u64().with_context(|| format!("bpftool says no {key} of map {id}"));
        let kind = said["type"].as_str().context("bpftool says no type of a map")?.to_owned();
        let (key_len, value_len) = (number("bytes_key")? as usize, number("bytes_value")? as usize);
        Ok(Self { id, kind, key_len, value_len })
    }

    /// From one value of an array to the next.
    fn stride(&self) -> u64 {
        self.value_len.next_multiple_of(8) as u64
    }

    fn look_up(&self, key: &[u8], cpu: usize) -> Result<Option<Vec<u8>>> {
        let id = self.id.to_string();
        let digits: Vec<String> = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut words = vec!["map", "lookup", "id", &id, "key", "hex"];
        words.extend(digits.iter().map(String::as_str));
        // An entry that is not there is an error to bpftool.
        let Ok(said) = bpftool(&words) else { return Ok(None) };
        let mut of_cpus = said["values"].as_array().into_iter().flatten();
        let value = match of_cpus.find(|one| one["cpu"] == cpu) {
            Some(of_cpu) => &of_cpu["value"],
            None => &said["value"],
        };
        let Some(digits) = value.as_array() else { return Ok(None) };
        let byte = |digits: &Value| {
            let digits = digits.as_str().and_then(|digits| digits.strip_prefix("0x"));
            u8::from_str_radix(digits.context("bpftool shows no bytes")?, 16).context("no byte")
        };
        let mut bytes: Vec<u8> = digits.iter().map(byte).collect::<Result<_>>()?;
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        Ok(Some(bytes))
    }
}

fn bpftool(words: &[&str]) -> Result<Value> {
    let said = shell::run("bpftool", [&["-j"], words].concat())?;
    serde_json::from_str(&said).context("bpftool did not answer in JSON")
}
