//! Default gateways, from the lines of `/proc/net/route` and `/proc/net/ipv6_route`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the gateway of an IPv4 route if it is a default route.
pub(super) fn gateway_v4(line: &str) -> Option<IpAddr> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (destination, gateway, mask) = (words.get(1)?, words.get(2)?, words.get(7)?);
    if *destination != "00000000" || *mask != "00000000" {
        return None;
    }
    // The four bytes are written as they lie in memory.
    let gateway = Ipv4Addr::from(u32::from_str_radix(gateway, 16).ok()?.to_ne_bytes());
    (!gateway.is_unspecified()).then_some(gateway.into())
}

/// Returns the gateway of an IPv6 route if it is a default route.
pub(super) fn gateway_v6(line: &str) -> Option<IpAddr> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (destination, len, gateway) = (words.first()?, words.get(1)?, words.get(4)?);
    if *len != "00" || destination.bytes().any(|digit| digit != b'0') {
        return None;
    }
    let gateway = Ipv6Addr::from(u128::from_str_radix(gateway, 16).ok()?);
    (!gateway.is_unspecified()).then_some(gateway.into())
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    #[test]
    fn only_a_default_route_through_somebody_has_a_gateway() {
        let v4 = |line| gateway_v4(line).map(|address| address.to_string());
        assert_eq!(v4("eth0 00000000 FE00630A 0003 0 0 100 00000000 0 0 0").as_deref(), Some("10.99.0.254"));
        assert_eq!(v4("eth0 0000630A FE00630A 0003 0 0 100 0000FFFF 0 0 0"), None);
        assert_eq!(v4("eth0 00000000 00000000 0001 0 0 100 00000000 0 0 0"), None, "straight onto the link");
        assert_eq!(v4("Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT"), None);
        assert_eq!(v4(""), None);
        let zero = "0".repeat(32);
        let router = "fe800000000000000000000000000001";
        let v6 = |line: &str| gateway_v6(line).map(|address| address.to_string());
        assert_eq!(v6(&format!("{zero} 00 {zero} 00 {router} 400 1 0 3 eth0")).as_deref(), Some("fe80::1"));
        assert_eq!(v6(&format!("{zero} 00 {zero} 00 {zero} ffffffff 1 0 200200 lo")), None);
        assert_eq!(v6(&format!("{router} 40 {zero} 00 {router} 400 1 0 3 eth0")), None);
    }
}
