//! Builds frames for tests.

use std::{vec, vec::Vec};

use super::std;

/// The flag of a segment that opens a connection.
pub(crate) const SYN: u8 = 0x02;
/// An Ethernet header of an IPv4 frame.
const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];

/// An IP packet in an Ethernet frame.
#[derive(Clone, Debug)]
pub(crate) struct IpFrame {
    /// The last two bytes of the sender's address, 10.0.x.y or 2001:db8:0:x::y.
    pub(crate) source: [u8; 2],
    pub(crate) is_v6: bool,
    pub(crate) protocol: u8,
    /// Flags and fragment offset of an IPv4 header.
    pub(crate) fragment: u16,
    pub(crate) payload: Vec<u8>,
}

impl IpFrame {
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut frame = ETHERNET.to_vec();
        let [net, host] = self.source;
        let len = self.payload.len() as u16;
        if self.is_v6 {
            frame[12..14].copy_from_slice(&[0x86, 0xdd]);
            frame.extend([0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([self.protocol, 64]);
            frame.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, net, 0, 0, 0, 0, 0, 0, 0, host]);
            frame.extend([0x20, 0x01, 0x0d, 0xb8, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        } else {
            frame.extend([0x45, 0]);
            frame.extend((20 + len).to_be_bytes());
            frame.extend([0, 1]);
            frame.extend(self.fragment.to_be_bytes());
            frame.extend([64, self.protocol, 0, 0, 10, 0, net, host, 192, 0, 2, 1]);
        }
        frame.extend(&self.payload);
        frame
    }
}

/// A UDP datagram with `len` bytes to a port, from 10.0.x.y.
pub(crate) fn udp(source: [u8; 2], port: u16, len: usize) -> Vec<u8> {
    let mut payload = vec![0x30, 0x39];
    payload.extend(port.to_be_bytes());
    payload.extend((8 + len as u16).to_be_bytes());
    payload.extend([0, 0]);
    payload.resize(8 + len, 0x5a);
    IpFrame { source, is_v6: false, protocol: 17, fragment: 0, payload }.frame()
}

/// A TCP segment to a port, from 10.0.x.y.
pub(crate) fn tcp(source: [u8; 2], port: u16, flags: u8) -> Vec<u8> {
    let mut payload = vec![0xc0, 1];
    payload.extend(port.to_be_bytes());
    payload.extend([0, 0, 0, 7, 0, 0, 0, 9, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    IpFrame { source, is_v6: false, protocol: 6, fragment: 0, payload }.frame()
}

/// An ARP request from a hardware address.
pub(crate) fn arp(mac: u8) -> Vec<u8> {
    from_mac(mac, [0x08, 0x06])
}

/// A frame of an EtherType, from a hardware address.
pub(crate) fn from_mac(mac: u8, ether_type: [u8; 2]) -> Vec<u8> {
    let mut frame = ETHERNET.to_vec();
    frame[11] = mac;
    frame[12..14].copy_from_slice(&ether_type);
    frame.resize(60, 0);
    frame
}
