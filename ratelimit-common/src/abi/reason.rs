//! Why a frame passed or was dropped. Every frame ends with exactly one reason.

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The frame is handed on to the kernel.
    Pass,
    /// The frame is dropped.
    Drop,
    /// The frame is turned into a reply and sent back. The host's stack never sees it.
    Reply,
}

impl Verdict {
    /// The word for the verdict in metrics and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Drop => "drop",
            Self::Reply => "reply",
        }
    }
}

macro_rules! reasons {
    ($( $(#[$attr:meta])* $variant:ident = $name:literal, $verdict:ident; )+) => {
        /// Why a frame got its verdict. Part of the index into the counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Reason {
            $( $(#[$attr])* $variant, )+
        }

        impl Reason {
            /// All reasons, by discriminant.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )+];

            /// The declaration as text; part of the ABI fingerprint.
            pub const LAYOUT: &'static str = stringify!($( $variant $verdict, )+);

            /// The reason of this number. Functions of the kernel program pass reasons as numbers; a number that is no
            /// reason cannot occur, and would be a refusal.
            #[inline(always)]
            pub const fn from_code(code: u32) -> Self {
                match code {
                    $( c if c == Self::$variant as u32 => Self::$variant, )+
                    _ => Self::TableFull,
                }
            }

            /// The word for the reason in metrics and tables.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )+ }
            }

            /// What happens to a frame that ends with this reason.
            #[inline(always)]
            pub const fn verdict(self) -> Verdict {
                match self { $( Self::$variant => Verdict::$verdict, )+ }
            }
        }
    };
}

reasons! {
    /// Within every limit that applies.
    Conforming = "conforming", Pass;
    /// The source is on the allow list.
    Allowed = "allowed", Pass;
    /// Above a soft limit, and within its margin.
    SoftMargin = "soft_margin", Pass;
    /// No policy is loaded, or it has no limits.
    Unlimited = "unlimited", Pass;
    /// ARP: without it no neighbour finds the host.
    Arp = "arp", Pass;
    /// IPv6 neighbour discovery with hop limit 255, so from this link.
    NeighbourDiscovery = "neighbour_discovery", Pass;
    /// Neither IP nor ARP. Sources cannot be told apart, and the host's IP stack never sees it.
    NotIp = "not_ip", Pass;
    /// The packet completes a handshake: its acknowledgement carries a SYN cookie of this host.
    CookieValid = "cookie_valid", Pass;
    /// A SYN, answered with a cookie.
    CookieSent = "cookie_sent", Reply;
    /// A TCP packet that opens nothing, belongs to no connection and carries no valid cookie, or a SYN from an address that no reply could reach, while
    /// SYNs are answered with cookies.
    CookieInvalid = "cookie_invalid", Drop;
    /// The source is on the block list.
    Blocked = "blocked", Drop;
    /// Over a limit in packets.
    LimitPackets = "limit_packets", Drop;
    /// Over a limit in bytes.
    LimitBytes = "limit_bytes", Drop;
    /// Over a limit in SYNs.
    LimitSyns = "limit_syns", Drop;
    /// Over a limit in fragments.
    LimitFragments = "limit_fragments", Drop;
    /// The user of the source has used up what all its addresses may send together.
    LimitUser = "limit_user", Drop;
    /// The addresses around the source have together used up what they may send, at some prefix length.
    LimitPrefix = "limit_prefix", Drop;
    /// Over the total of the packet's service.
    ServiceTotal = "service_total", Drop;
    /// Over the total of the host, which all services share.
    HostTotal = "host_total", Drop;
    /// ARP, neighbour discovery or not IP, above the cap of the interface.
    LinkCap = "link_cap", Drop;
    /// A source without an entry, beyond what its cell vouches for, while the budget for new sources is used up.
    NewSourceBudget = "new_source_budget", Drop;
    /// So many CPUs charged the bucket at once that the bounded retries ran out.
    Contended = "contended", Drop;
    /// The table of sources had no room even after evicting.
    TableFull = "table_full", Drop;
    /// The frame ends inside a header that it announces.
    Truncated = "truncated", Drop;
    /// More than two VLAN tags.
    VlanDepth = "vlan_depth", Drop;
    /// An IPv4 or IPv6 header that contradicts itself.
    BadIpHeader = "bad_ip_header", Drop;
    /// An IPv6 source inside ::ffff:0:0/96, which never appears on a wire.
    MappedSource = "mapped_source", Drop;
    /// More IPv6 extension headers than the parser follows.
    ExtensionChain = "extension_chain", Drop;
}

impl Reason {
    /// Whether the limits admit the packet.
    #[inline(always)]
    pub const fn admits(self) -> bool {
        matches!(self, Self::Conforming | Self::SoftMargin)
    }

    /// Of two reasons that admit, the one to count: a soft margin rather than `Conforming`.
    #[inline(always)]
    pub const fn and(self, other: Self) -> Self {
        if matches!(self, Self::Conforming) { other } else { self }
    }

    /// Whether the packet is refused not for what its source did, but because there is no room for an entry.
    #[inline(always)]
    pub const fn wants_room(self) -> bool {
        matches!(self, Self::NewSourceBudget | Self::TableFull)
    }

    /// Whether the reason is a limit on packets with a source, or a lack of room for an entry.
    #[inline(always)]
    pub const fn is_limit(self) -> bool {
        matches!(
            self,
            Self::LimitPackets
                | Self::LimitBytes
                | Self::LimitSyns
                | Self::LimitFragments
                | Self::LimitUser
                | Self::LimitPrefix
                | Self::ServiceTotal
                | Self::HostTotal
                | Self::NewSourceBudget
                | Self::Contended
                | Self::TableFull
        )
    }

    /// Whether the service decides what happens to a packet that is refused for this reason. The total of the host is not the service's: a service that
    /// lets packets above its limits pass must not open the host.
    #[inline(always)]
    pub const fn is_for_service(self) -> bool {
        self.is_limit() && !matches!(self, Self::HostTotal)
    }
}

/// Number of reasons: the size of the counters map.
pub const REASON_COUNT: usize = Reason::ALL.len();

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn every_reason_has_a_number_a_name_and_a_verdict() {
        for (code, reason) in (0..).zip(Reason::ALL) {
            assert_eq!((Reason::from_code(code), *reason as u32), (*reason, code));
            assert!(!reason.name().is_empty());
        }
        assert_eq!(Reason::from_code(999), Reason::TableFull, "what is no reason is a refusal");
        assert_eq!(
            [Verdict::Pass, Verdict::Drop, Verdict::Reply].map(Verdict::name),
            ["pass", "drop", "reply"]
        );
    }

    #[test]
    fn what_limits_admit_passes_and_what_says_more_wins() {
        use Reason::{Conforming, LimitBytes, SoftMargin};
        let admits: std::vec::Vec<Reason> =
            Reason::ALL.iter().copied().filter(|reason| reason.admits()).collect();
        assert_eq!(admits, [Conforming, SoftMargin]);
        assert_eq!(
            [Conforming.and(SoftMargin), SoftMargin.and(Conforming), LimitBytes.and(SoftMargin)],
            [SoftMargin, SoftMargin, LimitBytes]
        );
    }

    #[test]
    fn a_service_decides_about_limits_and_never_about_blocks_broken_headers_or_the_host() {
        for reason in Reason::ALL.iter().copied().filter(|reason| reason.is_for_service()) {
            assert!(reason.is_limit() && reason.verdict() == Verdict::Drop, "{}", reason.name());
        }
        for reason in [
            Reason::Blocked,
            Reason::HostTotal,
            Reason::LinkCap,
            Reason::Truncated,
            Reason::BadIpHeader,
            Reason::CookieInvalid,
            Reason::Conforming,
        ] {
            assert!(!reason.is_for_service(), "{}", reason.name());
        }
        assert!(Reason::ServiceTotal.is_for_service() && Reason::HostTotal.is_limit());
        assert!(Reason::NewSourceBudget.wants_room() && Reason::TableFull.wants_room());
        assert!(!Reason::LimitPackets.wants_room());
    }
}
