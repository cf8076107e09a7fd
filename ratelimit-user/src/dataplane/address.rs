//! Reads the addresses of this host over netlink.

use std::{collections::HashMap, net::IpAddr};

use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
};

use super::{DataplaneError, interface, netlink::dump};

/// Returns every address of this network namespace, with the name of its interface.
pub fn list() -> Result<Vec<(IpAddr, String)>, DataplaneError> {
    let names: HashMap<u32, String> =
        interface::list()?.into_iter().map(|interface| (interface.index, interface.name)).collect();
    let mut addresses = Vec::new();
    let each = |message| {
        if let RouteNetlinkMessage::NewAddress(message) = message {
            let name = names.get(&message.header.index).cloned().unwrap_or_default();
            addresses.extend(own(&message).map(|address| (address, name)));
        }
    };
    dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()), each)
        .map_err(DataplaneError::io("list the addresses of this host"))?;
    Ok(addresses)
}

/// Returns the address of this host in a message. On a point-to-point link `Address` is the other end, and only `Local` is ours.
fn own(message: &AddressMessage) -> Option<IpAddr> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })
}
