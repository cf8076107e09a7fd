//! Memory of limits that keep every request: callers choose names, so names that somebody makes up must not take the memory of the host.

use super::*;
use crate::{policy::log_bytes, requests::Usage};

/// A user that nobody has named before.
fn name(n: u64) -> String {
    format!("guest-{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn world(keys: u64, limits: &str) -> World {
    World::new(&format!("[requests]\nkeys = {keys}\n[[api]]\nname = \"api\"\nlimits = [{limits}]\n"))
}

#[test]
fn twice_as_many_names_as_there_is_room_for_take_little_of_a_log_each() {
    let world = world(100_000, "\"10000/day sliding-log\"");
    for n in 0..200_000 {
        assert!(world.serves(&Request::new(&name(n), "api"), START + n));
    }
    let Usage { keys, evicted, log_bytes: bytes } = world.engine.usage();
    assert_eq!(keys + evicted, 200_000);
    // There are two fifths more places than were asked for, rounded up to whole sets in each shard.
    assert!(keys <= 141_000, "{keys}");
    assert_eq!(bytes, 64 * keys, "a ring of four words and what is kept beside it");
}

#[test]
fn all_logs_together_take_no_more_than_they_may_and_who_asks_keeps_what_it_counted() {
    for limits in
        ["\"10000/day sliding-log\"", "\"10000/hour sliding-log\", \"9/s\", \"9999/day sliding-log\""]
    {
        let world = world(1_000, limits);
        let most = log_bytes(1_000);
        let served = |user: &str, now_us| world.serves(&Request::new(user, "api"), now_us);
        let mut counted = 0;
        let mut largest = 0;
        for n in 0..3_000 {
            // One question for nine thousand units: a log of 72 KB.
            let (name, now_us) = (name(n), START + n * 300_000);
            let mut request = Request::new(&name, "api");
            request.cost = if limits.contains("9/s") { 9 } else { 9_000 };
            assert!(world.serves(&request, now_us));
            if n % 3 == 0 {
                counted += u32::from(served("regular", now_us));
            }
            largest = largest.max(world.engine.usage().log_bytes);
        }
        assert!(largest <= most, "{limits}: {largest} of {most}");
        let rules = world.engine.rules();
        let left = world.engine.peek(&rules, &Request::new("regular", "api"), START + 900_000_000).unwrap();
        assert_eq!(counted, 1_000);
        assert!(left.limit.unwrap().remaining <= 10_000 - 1_000, "{limits}: it was forgotten");
        if !limits.contains("9/s") {
            assert!(largest > most * 9 / 10, "{largest} of {most}: the bound was reached");
            assert!(world.engine.usage().evicted > 1_500);
        }
    }
}

#[test]
fn a_list_with_logs_and_other_limits_holds_all_of_them_exactly() {
    // Logs come first among the words of a key, whatever the order of the list.
    let world = world(
        1_000,
        "\"40/hour\", \"20/min sliding-log\", \"60/day sliding-window\", \"30/hour sliding-log\"",
    );
    let user = Request::new("u", "api");
    assert_eq!(world.served(&user, START, 50), 20);
    assert_eq!(world.served(&user, START + MINUTE, 50), 0, "what is exactly a window old still counts");
    assert_eq!(world.served(&user, START + MINUTE + 1, 50), 10);
    assert_eq!(world.served(&user, START + 60 * MINUTE + 1, 50), 20);
    let rules = world.engine.rules();
    assert_eq!(world.engine.refund(&rules, &user, START + 60 * MINUTE + 1), Ok(true));
    assert_eq!(world.served(&user, START + 60 * MINUTE + 1, 50), 1);
    world.engine.reset(&rules, &user).unwrap();
    assert_eq!(world.engine.usage().log_bytes, 0);
    assert_eq!(world.served(&user, START + 60 * MINUTE + 1, 50), 20);
}

#[test]
fn a_log_keeps_what_it_counted_through_a_change_of_the_list() {
    let of = |limits: &str| policy(&format!("[[api]]\nname = \"api\"\nlimits = [{limits}]\n"));
    let world = World { engine: Engine::new(&of("\"5/min\", \"1000/hour sliding-log\""), START) };
    let user = Request::new("u", "api");
    assert_eq!(world.served(&user, START, 50), 5);
    world.engine.follow(&of("\"2000/day sliding-log\", \"8/hour sliding-log\", \"50/min\""), START);
    assert_eq!(world.served(&user, START, 50), 3);
}
