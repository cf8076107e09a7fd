//! What others answer or leave behind: captures, replies of Redis, files of the state directory.

use std::io::Cursor;

use ratelimit_user::{
    capture::{ArrivalMaker, Capture},
    cluster::gossip,
    daemon,
    store::{inquiry, lease_batch, redis::masters_in},
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
    // Of a Sentinel, of a node of a cluster, of the script that tells of blocks and hosts.
    let parts = if let Value::Array(all) = &reply { all.len() } else { 0 };
    assert!(masters_in(&reply) <= parts.max(1), "more masters than the reply has parts");
    let _maybe_nonsense = gossip::told_in(&reply);
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

/// What a front process says is understood or ends the front, and what is understood can be said again.
pub(super) fn front(bytes: &[u8]) {
    let messages = at_once(daemon::front::read_any_messages(bytes));
    assert!(messages * 4 <= 2 * bytes.len(), "{messages} messages in {} bytes", bytes.len());
}

/// What comes of a task that waits for nobody.
pub(super) fn at_once<R>(task: impl Future<Output = R>) -> R {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(task)
}
