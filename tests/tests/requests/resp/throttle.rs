//! Limits that the caller describes.

use ratelimit_tests::resp::packed_bytes;

use super::{caller, service};

#[test]
fn cl_throttle_answers_five_integers_like_redis_cell() {
    let service = service();
    let mut caller = caller(&service);
    assert_eq!(caller.ask("CL.THROTTLE user123 15 30 60 1"), "0 16 15 -1 2");
    assert_eq!(caller.ask("cl.throttle user123 15 30 60 15"), "0 16 0 -1 32");
    assert_eq!(caller.ask("CL.THROTTLE user123 15 30 60"), "1 16 0 2 32");
    assert_eq!(caller.ask("CL.THROTTLE user123 15 30 60 17"), "1 16 0 -1 32");
    assert_eq!(caller.ask("CL.THROTTLE other 15 30 60 0"), "0 16 16 -1 0");
}

#[test]
fn errors_are_redis_cells() {
    let service = service();
    let mut caller = caller(&service);
    let usage = "-Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
    assert_eq!(caller.ask("CL.THROTTLE"), usage);
    assert_eq!(caller.ask("CL.THROTTLE k 1 1"), usage);
    assert_eq!(caller.ask("CL.THROTTLE k 1 x 1"), "-Cell error: Store error: Couldn't parse as integer: x");
    assert_eq!(caller.ask("CL.THROTTLE k 1 0 1"), "-Cell error: Store error: Zero rates are not supported");
    let long = "k".repeat(1_025);
    assert_eq!(caller.ask(&format!("CL.THROTTLE {long} 0 1 60")), "0 1 0 -1 60", "as with redis-cell");
    assert_eq!(caller.ask(&format!("CL.THROTTLE {long} 0 1 60")), "1 1 0 60 60");
    assert_eq!(caller.ask("PING"), "PONG", "a mistake costs no connection");
}

#[test]
fn keys_are_bytes_and_never_the_policys() {
    let service = service();
    let mut caller = caller(&service);
    let words: [&[u8]; 5] = [b"CL.THROTTLE", b"\xff\0\r\n", b"0", b"1", b"60"];
    caller.send(&packed_bytes(&words));
    assert_eq!(caller.receive(), "0 1 0 -1 60");
    caller.send(&packed_bytes(&words));
    assert_eq!(caller.receive(), "1 1 0 60 60");
    assert_eq!(caller.ask("CL.THROTTLE ann 0 1 60"), "0 1 0 -1 60");
    assert!(caller.ask("CHECK ann search").starts_with("1 4 "));
}

#[test]
fn throttle_answers_in_the_order_of_throttlecrab() {
    let service = service();
    let mut caller = caller(&service);
    assert_eq!(caller.ask("THROTTLE k 2 1 60"), "1 2 1 60 0");
    assert_eq!(caller.ask("THROTTLE k 2 1 60 1"), "1 2 0 120 0");
    assert_eq!(caller.ask("THROTTLE k 2 1 60"), "0 2 0 120 60");
    assert_eq!(caller.ask("THROTTLE k"), "-ERR wrong number of arguments for 'throttle' command");
    assert_eq!(
        caller.ask("THROTTLE k 0 1 60"),
        "-ERR Rate limit check failed: invalid rate limit parameters"
    );
}
