//! What others answer or leave behind: captures, replies of Redis, files of the state directory.

use std::io::Cursor;

use ratelimit_user::{
    capture::{ArrivalMaker, Capture},
    daemon,
    store::{inquiry, lease_batch},
};
use redis::Value;

/// Packets that are read of one capture: each takes at least a few bytes of it.
const MOST_PACKETS: usize = 1 << 16;

/// A capture ends, in a packet that has at most the bytes of the file, or in a sentence.
pub(super) fn capture(bytes: &[u8]) {
    let Ok(mut capture) = Capture::read("a capture", Box::new(Cursor::new(bytes.to_vec()))) else { return };
    let mut arrivals = ArrivalMaker::default();
    for _ in 0..MOST_PACKETS {
        let Ok(Some(packet)) = capture.next_packet() else { return };
        assert!(packet.bytes.len() <= bytes.len(), "a packet of more bytes than the file has");
        if let Ok(arrival) = arrivals.of(&packet) {
            assert!(arrival.frame.len() >= arrival.bytes.len() as u64 || !arrival.is_cut);
        }
    }
    panic!("a capture without an end");
}

/// A reply of the store is what was asked for, or nonsense; never more lines than were asked for.
pub(super) fn store(bytes: &[u8]) {
    let Ok(reply) = redis::parse_redis_value(bytes) else { return };
    let lines = if let Value::Array(all) = &reply { all.len() } else { 1 };
    for asked in [0, 1, 2, lines / 3, lines / 10] {
        if let Ok(told) = inquiry::answers(&reply, asked) {
            assert_eq!(told.len(), asked);
        }
        if let Ok(grants) = lease_batch::grants(&reply, asked) {
            assert_eq!(grants.len(), asked);
        }
    }
}

/// A file of the state directory is whole, or says what is damaged.
pub(super) fn state(bytes: &[u8]) {
    assert!(daemon::read_any_state(bytes), "notes that are written differ from those that were read");
}
