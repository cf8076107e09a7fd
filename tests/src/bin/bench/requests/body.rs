//! The bodies of gRPC calls, written by hand: two messages of a few strings and numbers need no compiler.

/// What `ShouldRateLimit` of Envoy's service is asked: one descriptor.
pub(super) fn envoy(domain: &str, entries: &[(&str, &str)]) -> Vec<u8> {
    let entries = entries
        .iter()
        .flat_map(|(key, value)| bytes(1, &[bytes(1, key.as_bytes()), bytes(2, value.as_bytes())].concat()));
    let descriptor: Vec<u8> = entries.collect();
    framed(&[bytes(1, domain.as_bytes()), bytes(2, &descriptor)].concat())
}

/// What `Throttle` of throttlecrab is asked.
pub(super) fn throttlecrab(key: &str, burst: u64, count: u64, period_s: u64) -> Vec<u8> {
    let numbers = [number(2, burst), number(3, count), number(4, period_s), number(5, 1)];
    framed(&[bytes(1, key.as_bytes()), numbers.concat()].concat())
}

/// A message as gRPC sends it: not compressed, its length, itself.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a few dozen bytes");
    [&[0][..], &length.to_be_bytes(), message].concat()
}

/// A field with a length.
fn bytes(field: u8, content: &[u8]) -> Vec<u8> {
    [&[field << 3 | 2][..], &varint(content.len() as u64), content].concat()
}

/// A field that is a number.
fn number(field: u8, value: u64) -> Vec<u8> {
    [&[field << 3][..], &varint(value)].concat()
}

/// Seven bits a byte, the lowest first.
fn varint(mut value: u64) -> Vec<u8> {
    let mut written = Vec::new();
    while value >= 0x80 {
        written.push(value as u8 | 0x80);
        value >>= 7;
    }
    written.push(value as u8);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_envoy_is_what_protoc_encodes() {
        // protoc --encode, fed with: domain: "d" descriptors { entries { key: "user" value: "u1" } entries { key: "api" value: "a" } }
        let message = b"\x0a\x01d\x12\x16\x0a\x0a\x0a\x04user\x12\x02u1\x0a\x08\x0a\x03api\x12\x01a";
        let expected = [&[0, 0, 0, 0, message.len() as u8][..], message].concat();
        assert_eq!(envoy("d", &[("user", "u1"), ("api", "a")]), expected);
    }

    #[test]
    fn a_call_of_throttlecrab_is_what_protoc_encodes() {
        // protoc --encode, fed with: key: "k" max_burst: 1000000 count_per_period: 300 period: 1 quantity: 1
        let message = b"\x0a\x01k\x10\xc0\x84\x3d\x18\xac\x02\x20\x01\x28\x01";
        let expected = [&[0, 0, 0, 0, message.len() as u8][..], message].concat();
        assert_eq!(throttlecrab("k", 1_000_000, 300, 1), expected);
    }
}
