//! Reads network interfaces and the XDP programs on them over netlink.

use std::io;

use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkInfo, LinkMessage, LinkXdp, XdpAttached},
};

use super::{
    DataplaneError,
    framing::Framing,
    netlink::{self, dump},
};

/// The mode in which a program runs on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// The program runs in the driver, before the kernel allocates anything.
    Native,
    /// The program runs in the network stack, after a socket buffer was made: at about a tenth of the speed.
    Generic,
}

impl AttachMode {
    /// Returns the name of the mode in `status` and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// The XDP program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The id of the program in the kernel.
    pub program_id: u32,
    /// The mode that the program runs in.
    pub mode: AttachMode,
}

/// One interface of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name of the interface.
    pub name: String,
    /// The index of the interface.
    pub index: u32,
    /// The index of the interface below, if this one is a VLAN.
    pub vlan_of: Option<u32>,
    /// The framing of the interface, or why it cannot be read.
    pub framing: Result<Framing, String>,
    /// The XDP program of the interface, whoever attached it.
    pub attached: Option<Attached>,
    /// The kind of the interface: `veth`, `tun`, `bridge`, `bond`, `vlan`; `None` for a plain device.
    pub kind: Option<String>,
    /// The index of the bond or bridge that this interface is a port of.
    pub port_of: Option<u32>,
    /// The size of the largest packet in bytes.
    pub mtu: Option<u32>,
    /// The other end of a pair of interfaces (veth).
    pub far_end: Option<FarEnd>,
    /// The number of receive queues, if the kernel tells it.
    pub rx_queues: Option<u32>,
    /// The bus and the name of the device behind the interface, such as `pci` and `0000:00:05.0`.
    pub device: Option<(String, String)>,
}

/// The other end of a pair of interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarEnd {
    /// The index of the other end in its own network namespace.
    pub index: u32,
    /// The number by which this network namespace knows the other end's namespace, if it is another one.
    pub namespace: Option<i32>,
}

impl FarEnd {
    /// Whether the other end of a veth takes packets that a program sends back through the interface they came in by (XDP_TX): the driver hands them only to
    /// an end that runs a program itself, in native mode. With neither a program nor GRO at the other end the kernel counts them as `xdp_tx_errors`; with GRO
    /// alone they stay in a queue that is not polled (`veth_xdp_flush` in drivers/net/veth.c, up to 6.18).
    ///
    /// # Errors
    /// The kernel refuses a process that may not administer the other end's namespace.
    pub fn takes_answers(&self) -> io::Result<bool> {
        let mut question = LinkMessage::default();
        question.header.index = self.index;
        question.attributes.extend(self.namespace.map(LinkAttribute::IfNetnsId));
        let answer = netlink::one(RouteNetlinkMessage::GetLink(question))?;
        let RouteNetlinkMessage::NewLink(link) = answer else {
            return Err(io::Error::other("the kernel did not say"));
        };
        let far = interface(&link).ok_or_else(|| io::Error::other("the other end has no name"))?;
        Ok(far.attached.is_some_and(|attached| attached.mode == AttachMode::Native))
    }
}

/// Finds an interface by its name.
pub fn find(name: &str) -> Result<Interface, DataplaneError> {
    let all = list()?;
    among(&all, name).cloned()
}

/// Finds an interface by its name among those listed.
pub fn among<'a>(all: &'a [Interface], name: &str) -> Result<&'a Interface, DataplaneError> {
    all.iter().find(|interface| interface.name == name).ok_or_else(|| DataplaneError::NoInterface {
        name: name.to_owned(),
        known: all.iter().map(|interface| interface.name.clone()).collect(),
    })
}

/// Whether one of the listed interfaces is a VLAN of the one with this index.
pub fn has_vlans(all: &[Interface], index: u32) -> bool {
    all.iter().any(|interface| interface.vlan_of == Some(index))
}

impl Interface {
    /// Returns the framing; an error if the program cannot read frames of the interface.
    pub fn require_framing(&self) -> Result<Framing, DataplaneError> {
        self.framing
            .clone()
            .map_err(|reason| DataplaneError::LinkType { interface: self.name.clone(), reason })
    }
}

/// Lists all interfaces of this network namespace.
pub fn list() -> Result<Vec<Interface>, DataplaneError> {
    let mut interfaces = Vec::new();
    let each = |message| {
        if let RouteNetlinkMessage::NewLink(link) = message {
            interfaces.extend(interface(&link));
        }
    };
    dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), each)
        .map_err(DataplaneError::io("list the network interfaces"))?;
    Ok(interfaces)
}

fn interface(link: &LinkMessage) -> Option<Interface> {
    let mut name = None;
    let mut attached = None;
    let (mut kind, mut below, mut port_of, mut mtu, mut rx_queues) = (None, None, None, None, None);
    let (mut bus, mut device, mut namespace) = (None, None, None);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Xdp(xdp) => attached = program(xdp),
            LinkAttribute::Link(index) => below = Some(*index),
            LinkAttribute::LinkNetNsId(number) => namespace = Some(*number),
            LinkAttribute::LinkInfo(infos) => {
                kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            LinkAttribute::Controller(index) => port_of = Some(*index).filter(|index| *index != 0),
            LinkAttribute::Mtu(bytes) => mtu = Some(*bytes),
            LinkAttribute::NumRxQueues(queues) => rx_queues = Some(*queues),
            LinkAttribute::ParentDevName(text) => device = Some(text.clone()),
            LinkAttribute::ParentDevBusName(text) => bus = Some(text.clone()),
            _ => {}
        }
    }
    let framing = Framing::of(link.header.link_layer_type, kind.as_deref());
    let vlan_of = below.filter(|_| kind.as_deref() == Some("vlan"));
    let is_pair = kind.as_deref() == Some("veth");
    let far_end = below.filter(|_| is_pair).map(|index| FarEnd { index, namespace });
    let index = link.header.index;
    let device = bus.zip(device);
    let name = name?;
    Some(Interface {
        name,
        index,
        vlan_of,
        framing,
        attached,
        kind,
        port_of,
        mtu,
        far_end,
        rx_queues,
        device,
    })
}

fn program(xdp: &[LinkXdp]) -> Option<Attached> {
    let mut mode = None;
    let mut ids = [None; 3];
    for attribute in xdp {
        match attribute {
            LinkXdp::Attached(XdpAttached::None) => return None,
            LinkXdp::Attached(XdpAttached::SocketBuffer) => mode = Some(AttachMode::Generic),
            LinkXdp::Attached(_) => mode = Some(AttachMode::Native),
            LinkXdp::ProgId(id) => ids[0] = Some(*id),
            // With programs in several modes the kernel reports each; the one in the driver runs first.
            LinkXdp::DrvProgId(id) => ids[1] = Some(*id),
            LinkXdp::SkbProgId(id) => ids[2] = Some(*id),
            _ => {}
        }
    }
    Some(Attached { program_id: ids.into_iter().flatten().find(|id| *id != 0)?, mode: mode? })
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::{InfoKind, LinkLayerType};

    use super::*;

    fn told(index: u32, below: u32, kind: InfoKind) -> Interface {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.link_layer_type = LinkLayerType::Ether;
        message.attributes = vec![
            LinkAttribute::IfName(format!("if{index}")),
            LinkAttribute::Link(below),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]),
        ];
        interface(&message).unwrap()
    }

    #[test]
    fn an_interface_has_vlans_if_others_are_vlans_of_it() {
        // A veth is linked to its other end, but is no VLAN of it.
        let all = [told(3, 4, InfoKind::Veth), told(4, 3, InfoKind::Veth), told(5, 4, InfoKind::Vlan)];
        assert!(has_vlans(&all, 4));
        assert!(!has_vlans(&all, 3) && !has_vlans(&all, 5));
        let far_ends = all.each_ref().map(|one| one.far_end.map(|end| end.index));
        assert_eq!(far_ends, [Some(4), Some(3), None]);
    }
}
