//! Reads the kernel's type information (BTF), as far as is needed to find a field of a structure.
//!
//! aya reads this file for its relocations too, but does not expose the types.

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
const HEADER_LEN: usize = 24;
const TYPE_LEN: usize = 12;
const MEMBER_LEN: usize = 12;
/// The greatest depth of nested structures or names for a type: far more than any kernel has.
const DEEPEST: usize = 16;

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// Types by their numbers, and their names.
#[derive(Debug)]
pub(super) struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins; the first has number 1.
    starts: Vec<usize>,
    structs: HashMap<&'a [u8], usize>,
}

/// The place of a field in a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Bits from the beginning of the structure.
    pub(super) bit: u32,
    /// The size of the field in bits.
    pub(super) bits: u32,
}

impl<'a> Btf<'a> {
    /// Reads type information; `None` if the data is none, or has a kind of type that is not known yet.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let word = |at| u32_at(data, at).map(|word| word as usize);
        if data.get(..2)? != MAGIC.to_ne_bytes() {
            return None;
        }
        let header_len = word(4)?.max(HEADER_LEN);
        let section = |at: usize, len: usize| data.get(header_len.checked_add(at)?..)?.get(..len);
        let (types, strings) = (section(word(8)?, word(12)?)?, section(word(16)?, word(20)?)?);
        let mut btf = Self { types, strings, starts: Vec::new(), structs: HashMap::new() };
        let mut at = 0;
        while at < types.len() {
            let (info, number) = (u32_at(types, at + 4)?, btf.starts.len() + 1);
            if kind(info) == STRUCT {
                // If several structures have one name, the kernel itself uses the first.
                btf.structs.entry(btf.name(u32_at(types, at)?)?).or_insert(number);
            }
            btf.starts.push(at);
            at += TYPE_LEN + trailer(info)?;
        }
        Some(btf)
    }

    /// Finds a field by its structure and the names on the path to it.
    pub(super) fn field(&self, structure: &str, path: &[&str]) -> Option<Field> {
        let mut found = Field { bit: 0, bits: 0 };
        let mut within = *self.structs.get(structure.as_bytes())?;
        for name in path {
            let (field, of_type) = self.member(within, name.as_bytes(), DEEPEST)?;
            found = Field { bit: found.bit.checked_add(field.bit)?, bits: field.bits };
            within = of_type;
        }
        Some(found)
    }

    /// Finds a member of a structure, or of a nameless structure or union in it, and the number of the member's type.
    fn member(&self, structure: usize, name: &[u8], depth: usize) -> Option<(Field, usize)> {
        let structure = self.resolved(structure)?;
        let at = *self.starts.get(structure.checked_sub(1)?)?;
        let info = u32_at(self.types, at + 4)?;
        if depth == 0 || !matches!(kind(info), STRUCT | UNION) {
            return None;
        }
        for index in 0..(info & 0xffff) as usize {
            let member = at + TYPE_LEN + index * MEMBER_LEN;
            let (of_type, place) =
                (u32_at(self.types, member + 4)? as usize, u32_at(self.types, member + 8)?);
            // With the flag set, the upper eight bits are the size of a bit field.
            let (bit, bits) = if info >> 31 == 1 { (place & 0x00ff_ffff, place >> 24) } else { (place, 0) };
            match self.name(u32_at(self.types, member)?)? {
                b"" => {
                    if let Some((field, of_type)) = self.member(of_type, name, depth - 1) {
                        return Some((Field { bit: bit.checked_add(field.bit)?, ..field }, of_type));
                    }
                }
                found if found == name => {
                    let bits = if bits == 0 { self.size(of_type)?.checked_mul(8)? } else { bits };
                    return Some((Field { bit, bits }, of_type));
                }
                _ => {}
            }
        }
        None
    }

    /// Returns the size of a type in bytes; 0 for an array.
    fn size(&self, number: usize) -> Option<u32> {
        let at = *self.starts.get(self.resolved(number)?.checked_sub(1)?)?;
        match kind(u32_at(self.types, at + 4)?) {
            PTR => Some(size_of::<usize>() as u32),
            ARRAY => Some(0),
            INT | STRUCT | UNION | ENUM | ENUM64 => u32_at(self.types, at + 8),
            _ => None,
        }
    }

    /// Returns the number of a type behind its typedefs and qualifiers.
    fn resolved(&self, mut number: usize) -> Option<usize> {
        for _ in 0..DEEPEST {
            let at = *self.starts.get(number.checked_sub(1)?)?;
            match kind(u32_at(self.types, at + 4)?) {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => {
                    number = u32_at(self.types, at + 8)? as usize;
                }
                _ => return Some(number),
            }
        }
        None
    }

    fn name(&self, at: u32) -> Option<&'a [u8]> {
        let rest = self.strings.get(at as usize..)?;
        rest.split(|byte| *byte == 0).next()
    }
}

fn kind(info: u32) -> u32 {
    (info >> 24) & 0x1f
}

/// Returns the number of bytes behind the fixed part of a type.
fn trailer(info: u32) -> Option<usize> {
    let entries = (info & 0xffff) as usize;
    Some(match kind(info) {
        INT | VAR | DECL_TAG => 4,
        ARRAY => 12,
        STRUCT | UNION | DATASEC | ENUM64 => 12 * entries,
        ENUM | FUNC_PROTO => 8 * entries,
        // Pointers, forward declarations, typedefs, qualifiers, functions, tags and floating point have nothing behind the fixed part.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
