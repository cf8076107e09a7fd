use std::fs;

use super::*;

/// A writer of type information.
#[derive(Default)]
struct Written {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl Written {
    fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0] }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
        at
    }

    /// Adds one type, with the words behind its fixed part.
    fn add(&mut self, name: &str, kind: u32, entries: u32, flag: bool, size: u32, rest: &[u32]) {
        let name = self.name(name);
        let info = (u32::from(flag) << 31) | (kind << 24) | entries;
        for word in [name, info, size].iter().chain(rest) {
            self.types.extend(word.to_ne_bytes());
        }
    }

    fn structure(&mut self, name: &str, flag: bool, size: u32, members: &[(&str, u32, u32)]) {
        let rest: Vec<u32> =
            members.iter().flat_map(|(name, of_type, place)| [self.name(name), *of_type, *place]).collect();
        self.add(name, STRUCT, members.len() as u32, flag, size, &rest);
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, self.types.len() as u32, self.types.len() as u32, self.strings.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        [bytes, self.types.clone(), self.strings.clone()].concat()
    }
}

/// Writes type information with a structure in another one, a bit field, a nameless structure, and a typedef.
fn sample() -> Written {
    let mut written = Written::new();
    written.add("int", INT, 0, false, 4, &[32]); // 1
    written.add("u16", TYPEDEF, 0, false, 3, &[]); // 2
    written.add("short", INT, 0, false, 2, &[16]); // 3
    written.structure("", false, 8, &[("hidden", 1, 32)]); // 4
    written.structure("inner", true, 16, &[("locks", 1, (4 << 24) | 12), ("", 4, 32), ("mss", 2, 96)]); // 5
    written.add("p", PTR, 0, false, 5, &[]); // 6
    written.structure("outer", false, 32, &[("first", 1, 0), ("inner", 5, 64), ("to", 6, 192)]); // 7
    written.structure("outer", false, 4, &[("first", 1, 8)]); // 8
    written
}

#[test]
fn fields_are_found_through_structures_unnamed_ones_and_other_names_of_types() {
    let bytes = sample().bytes();
    let btf = Btf::parse(&bytes).unwrap();
    let field = |path: &[&str]| btf.field("outer", path).map(|field| (field.bit, field.bits));
    assert_eq!(field(&["first"]), Some((0, 32)), "of the first structure of that name");
    assert_eq!(field(&["inner", "locks"]), Some((64 + 12, 4)));
    assert_eq!(field(&["inner", "hidden"]), Some((64 + 32 + 32, 32)));
    assert_eq!(field(&["inner", "mss"]), Some((64 + 96, 16)));
    assert_eq!(field(&["to"]), Some((192, 64)));
    assert_eq!(field(&["to", "locks"]), None, "a pointer is not what it points to");
    assert_eq!((field(&["inner", "none"]), btf.field("none", &["first"])), (None, None));
}

#[test]
fn anything_cut_short_or_changed_is_refused_or_searched_without_a_panic() {
    let bytes = sample().bytes();
    let look = |bytes: &[u8]| {
        let btf = Btf::parse(bytes)?;
        btf.field("outer", &["inner", "hidden"])
    };
    for len in 0..bytes.len() {
        let _ = look(&bytes[..len]);
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut other = bytes.clone();
            other[at] = value;
            let _ = look(&other);
        }
    }
    assert_eq!(look(&bytes[..20]), None);
    assert!(look(&bytes).is_some());
}

#[test]
fn a_structure_that_contains_itself_is_searched_in_the_end() {
    let mut written = Written::new();
    written.structure("loop", false, 8, &[("", 1, 0)]);
    written.add("t", TYPEDEF, 0, false, 2, &[]);
    written.structure("name", false, 8, &[("x", 2, 0)]);
    let bytes = written.bytes();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!((btf.field("loop", &["x"]), btf.field("name", &["x"])), (None, None));
}

#[test]
fn this_kernel_has_sockets() {
    let bytes = fs::read("/sys/kernel/btf/vmlinux").unwrap();
    let field = Btf::parse(&bytes).unwrap().field("sock", &["sk_rcvbuf"]).unwrap();
    assert_eq!((field.bits, field.bit % 32), (32, 0));
}
