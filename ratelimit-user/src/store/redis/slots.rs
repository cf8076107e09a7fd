//! Hash slots of a Redis Cluster: the slot of a key, and the servers of slots. Pure.

use ::redis::Value;

use crate::policy::address::Endpoint;

/// The number of hash slots of every cluster.
pub(super) const SLOTS: u16 = 16384;

/// Returns the slot of a key. It depends on what is between the first `{` and the next `}` of the key, or on all of the key if that is nothing.
pub fn slot(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let inner = &key[open + 1..];
    match inner.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(close) => &inner[..close],
    }
}

/// Computes CRC-16/XMODEM, as the specification of Redis Cluster has it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

/// The server of each slot, as far as we know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotMap {
    /// First slot, last slot and master of each range; later ranges win.
    ranges: Vec<(u16, u16, Endpoint)>,
}

impl SlotMap {
    /// Reads the answer to CLUSTER SLOTS. `asked` is the node that gave it, which may give itself no name.
    pub(super) fn read(answer: &Value, asked: &Endpoint) -> Option<Self> {
        let Value::Array(rows) = answer else { return None };
        let ranges = rows.iter().map(|row| range(row, asked)).collect::<Option<Vec<_>>>()?;
        Some(Self { ranges })
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Endpoint> {
        let found = self.ranges.iter().rfind(|(first, last, _)| (*first..=*last).contains(&slot));
        found.map(|(_, _, endpoint)| endpoint)
    }

    /// Records that a slot has another owner.
    pub(super) fn moved(&mut self, slot: u16, to: Endpoint) {
        self.ranges.retain(|(first, last, _)| (*first, *last) != (slot, slot));
        self.ranges.push((slot, slot, to));
    }

    /// Returns all masters, each once.
    pub(super) fn masters(&self) -> Vec<Endpoint> {
        let mut masters: Vec<_> = self.ranges.iter().map(|(_, _, endpoint)| endpoint.clone()).collect();
        masters.sort();
        masters.dedup();
        masters
    }
}

fn range(row: &Value, asked: &Endpoint) -> Option<(u16, u16, Endpoint)> {
    let Value::Array(row) = row else { return None };
    let [first, last, master, ..] = row.as_slice() else { return None };
    let Value::Array(master) = master else { return None };
    let [host, port, ..] = master.as_slice() else { return None };
    Some((number(first)?, number(last)?, endpoint(&text(host)?, number(port)?, asked)))
}

fn number(value: &Value) -> Option<u16> {
    let Value::Int(number) = value else { return None };
    u16::try_from(*number).ok()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Nil => Some(String::new()),
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// Returns the socket of a node. A node that does not know its own address, or has no host name (`?`), is where we asked.
fn endpoint(host: &str, port: u16, asked: &Endpoint) -> Endpoint {
    let host = match (host, asked) {
        ("" | "?", Endpoint::Tcp { host, .. }) => host.clone(),
        _ => host.to_owned(),
    };
    Endpoint::Tcp { host, port }
}

/// Reads what MOVED and ASK say: the slot, and `host:port`.
pub(super) fn redirection(detail: &str, asked: &Endpoint) -> Option<(u16, Endpoint)> {
    let (slot, place) = detail.split_once(' ')?;
    let (host, port) = place.trim().rsplit_once(':')?;
    Some((slot.parse().ok()?, endpoint(host, port.parse().ok()?, asked)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.into(), port }
    }

    #[test]
    fn slots_are_those_that_redis_computes() {
        // redis-cli CLUSTER KEYSLOT
        for (key, expected) in [
            ("123456789", 12739),
            ("foo", 12182),
            ("{user1000}.following", 3443),
            ("{user1000}.followers", 3443),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
            ("foo{bar}{zap}", 5061),
            ("", 0),
        ] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn a_slot_that_moved_has_its_new_owner_and_its_neighbours_keep_theirs() {
        let row = |first, last, host: &str, port| {
            let master = Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)]);
            Value::Array(vec![Value::Int(first), Value::Int(last), master])
        };
        let answer = Value::Array(vec![row(0, 99, "", 7000), row(100, 16383, "b", 7001)]);
        let mut map = SlotMap::read(&answer, &node("a", 7000)).unwrap();
        assert_eq!((map.owner(99), map.owner(100)), (Some(&node("a", 7000)), Some(&node("b", 7001))));
        map.moved(99, node("c", 7002));
        map.moved(99, node("b", 7001));
        assert_eq!((map.owner(98), map.owner(99)), (Some(&node("a", 7000)), Some(&node("b", 7001))));
        assert_eq!(map.masters(), [node("a", 7000), node("b", 7001)]);
        assert_eq!(SlotMap::default().owner(0), None);
        assert_eq!(SlotMap::read(&Value::Okay, &node("a", 7000)), None);
    }

    #[test]
    fn a_redirection_names_slot_and_node() {
        let asked = node("a", 7000);
        assert_eq!(redirection("3999 127.0.0.1:6381", &asked), Some((3999, node("127.0.0.1", 6381))));
        assert_eq!(redirection("3999 :6381", &asked), Some((3999, node("a", 6381))));
        assert_eq!(redirection("3999 2001:db8::1:6381", &asked), Some((3999, node("2001:db8::1", 6381))));
        assert_eq!(redirection("nonsense", &asked), None);
    }
}
