//! Which of the services that share a port a packet is for.

use ratelimit_common::abi::{destination::destination_key, service::NO_SERVICE};

use crate::{frame::Frame, packet::Family, parse, tables::Tables};

/// The service of a packet to a port of this class, by its destination: the longest prefix decides.
#[inline(always)]
pub fn service<T: Tables>(tables: &T, frame: &Frame<'_>, table: u32, class: u32) -> u32 {
    let Some(address) = parse::destination(frame) else { return NO_SERVICE };
    let ip_version = match address.family {
        Family::V4 => 4,
        Family::V6 => 6,
    };
    match tables.destined(table, &destination_key(class, ip_version, address.key.octets())) {
        Some(number) => number,
        None => NO_SERVICE,
    }
}
