//! Verdict tables through the loaded program: for each shape of header, which counter moves, and that no other does.

mod frames;
mod limits;
mod lists;
mod untracked;

use ratelimit_tests::frames::{Ipv4, Ipv6};

/// A limit that no single packet reaches: what is tested here is how frames are read.
const GENEROUS: &[&str] = &["100 packets/day", "100 syns/day", "100 MB/day"];

/// The IPv6 extension header of a fragment.
const FRAGMENT: u8 = 44;

fn v4() -> Ipv4 {
    Ipv4::from([192, 0, 2, 1])
}

fn v6() -> Ipv6 {
    Ipv6::from("2001:db8::1".parse().unwrap())
}
