//! Network interfaces and the XDP programs on them, asked over netlink.

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkMessage, LinkXdp, XdpAttached},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::DataplaneError;

/// How a program runs on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel allocates anything.
    Native,
    /// In the network stack, after a socket buffer was made: about a tenth of the speed.
    Generic,
}

impl Mode {
    /// As in `status` and metrics.
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
    /// Its id.
    pub program_id: u32,
    /// How it runs.
    pub mode: Mode,
}

/// One interface of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its XDP program, whoever attached it.
    pub attached: Option<Attached>,
}

/// The interface called `name`.
pub fn find(name: &str) -> Result<Interface, DataplaneError> {
    let mut all = list()?;
    match all.iter().position(|interface| interface.name == name) {
        Some(at) => Ok(all.swap_remove(at)),
        None => Err(DataplaneError::NoInterface {
            name: name.to_owned(),
            known: all.into_iter().map(|interface| interface.name).collect(),
        }),
    }
}

/// All interfaces of this network namespace.
pub fn list() -> Result<Vec<Interface>, DataplaneError> {
    let failed = || DataplaneError::io("list the network interfaces");
    let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed())?;
    socket.bind_auto().map_err(failed())?;
    socket.connect(&SocketAddr::new(0, 0)).map_err(failed())?;
    socket.send(&request(), 0).map_err(failed())?;
    let mut interfaces = Vec::new();
    loop {
        let (reply, _) = socket.recv_from_full().map_err(failed())?;
        if read(&reply, &mut interfaces).map_err(failed())? == Dump::Done {
            return Ok(interfaces);
        }
    }
}

#[derive(PartialEq, Eq)]
enum Dump {
    More,
    Done,
}

fn request() -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_DUMP | NLM_F_REQUEST;
    let payload = NetlinkPayload::from(RouteNetlinkMessage::GetLink(LinkMessage::default()));
    let mut message = NetlinkMessage::new(header, payload);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Takes every message of one datagram.
fn read(mut datagram: &[u8], interfaces: &mut Vec<Interface>) -> std::io::Result<Dump> {
    while !datagram.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(datagram)
            .map_err(|e| std::io::Error::other(e.to_string()))?;
        match message.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                interfaces.extend(interface(&link));
            }
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::Done(_) => return Ok(Dump::Done),
            _ => {}
        }
        // Messages are padded to four bytes.
        let len = (message.header.length as usize).next_multiple_of(4);
        datagram = datagram.get(len..).unwrap_or_default();
    }
    Ok(Dump::More)
}

fn interface(link: &LinkMessage) -> Option<Interface> {
    let mut name = None;
    let mut attached = None;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Xdp(xdp) => attached = program(xdp),
            _ => {}
        }
    }
    Some(Interface { name: name?, index: link.header.index, attached })
}

fn program(xdp: &[LinkXdp]) -> Option<Attached> {
    let mut mode = None;
    let mut ids = [None; 3];
    for attribute in xdp {
        match attribute {
            LinkXdp::Attached(XdpAttached::None) => return None,
            LinkXdp::Attached(XdpAttached::SocketBuffer) => mode = Some(Mode::Generic),
            LinkXdp::Attached(_) => mode = Some(Mode::Native),
            LinkXdp::ProgId(id) => ids[0] = Some(*id),
            // With several modes at once the kernel reports each by itself; the driver's decides first.
            LinkXdp::DrvProgId(id) => ids[1] = Some(*id),
            LinkXdp::SkbProgId(id) => ids[2] = Some(*id),
            _ => {}
        }
    }
    Some(Attached { program_id: ids.into_iter().flatten().find(|id| *id != 0)?, mode: mode? })
}
