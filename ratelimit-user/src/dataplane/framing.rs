//! The framing of an interface: what its frames begin with.
//!
//! A program reads frames as Ethernet or as bare IP, and would misread any other frame: addresses as a type, or other bytes as
//! addresses. So an interface whose frames are not known to be one or the other is refused.

use netlink_packet_route::link::LinkLayerType;

/// The header that the program has to read before the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Frames begin with an Ethernet header.
    Ethernet,
    /// Frames are IP packets, with no header in front.
    Ip,
}

impl Framing {
    /// Returns the name of the framing in `status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ethernet => "ethernet",
            Self::Ip => "ip",
        }
    }

    /// Returns a phrase to append to a mode; empty for Ethernet.
    pub fn words(self) -> &'static str {
        match self {
            Self::Ethernet => "",
            Self::Ip => ", frames are IP packets",
        }
    }

    /// Returns the framing of a link by its type and the kind of its driver, or why the link cannot be guarded.
    pub(super) fn of(link_type: LinkLayerType, driver: Option<&str>) -> Result<Self, String> {
        match link_type {
            // The kernel gives packets on the loopback interface an Ethernet header of zeros.
            LinkLayerType::Ether | LinkLayerType::Loopback => Ok(Self::Ethernet),
            LinkLayerType::None
            | LinkLayerType::Ppp
            | LinkLayerType::Rawip
            | LinkLayerType::Tunnel
            | LinkLayerType::Tunnel6
            | LinkLayerType::Sit => match driver {
                // In frames of these drivers a packet starts at its IP header; modems report no kind.
                None | Some("tun" | "wireguard" | "ppp" | "ipip" | "sit" | "ip6tnl") => Ok(Self::Ip),
                // IPsec drivers put the Ethernet header of the outer packet back in front; for others it depends on their settings.
                Some(driver) => Err(format!(
                    "it is known of links of the kind {driver} that headers of the outer packet may be in front of what they carry"
                )),
            },
            LinkLayerType::Ipgre | LinkLayerType::Ip6gre => Err(
                "GRE tunnels show the headers of the outer packet or not, as they are set up; guard the interface \
                 that their packets come in by"
                    .to_owned(),
            ),
            other => Err(format!("its frames begin with neither an Ethernet nor an IP header ({other})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_with_an_ethernet_header_are_read_as_ethernet_whoever_made_them() {
        for driver in [None, Some("veth"), Some("tun"), Some("bond"), Some("vlan")] {
            assert_eq!(Framing::of(LinkLayerType::Ether, driver), Ok(Framing::Ethernet));
        }
        assert_eq!(Framing::of(LinkLayerType::Loopback, None), Ok(Framing::Ethernet));
    }

    #[test]
    fn tunnels_whose_packets_start_at_the_ip_header_are_read_as_ip() {
        for (link_type, driver) in [
            (LinkLayerType::None, Some("tun")),
            (LinkLayerType::None, Some("wireguard")),
            (LinkLayerType::None, None),
            (LinkLayerType::Rawip, None),
            (LinkLayerType::Ppp, Some("ppp")),
            (LinkLayerType::Tunnel, Some("ipip")),
            (LinkLayerType::Tunnel6, Some("ip6tnl")),
            (LinkLayerType::Sit, Some("sit")),
        ] {
            assert_eq!(Framing::of(link_type, driver), Ok(Framing::Ip), "{link_type} {driver:?}");
        }
    }

    #[test]
    fn what_is_neither_is_refused_with_the_reason() {
        for (link_type, driver, reason) in [
            (LinkLayerType::Infiniband, None, "neither an Ethernet nor an IP header (INFINIBAND)"),
            (LinkLayerType::Can, Some("vcan"), "(CAN)"),
            (LinkLayerType::Void, None, "(VOID)"),
            (LinkLayerType::Ipgre, Some("gre"), "GRE"),
            (LinkLayerType::Ip6gre, Some("ip6gre"), "GRE"),
            // These two are kinds of IPsec links.
            (LinkLayerType::None, Some("xfrm"), "kind xfrm"),
            (LinkLayerType::Tunnel, Some("vti"), "kind vti"),
        ] {
            let refused = Framing::of(link_type, driver).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
