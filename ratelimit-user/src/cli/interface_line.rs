//! How `status` shows an interface, with a daemon and without one.

use crate::control::protocol::InterfaceStatus;

/// One interface, with a shout if it is not as it should be.
pub(super) fn interface_line(interface: &InterfaceStatus) -> String {
    let shout = match interface.mode.as_str() {
        "native" => "",
        "generic" => "  <-- NOT NATIVE",
        _ => "  <-- NOT PROTECTED",
    };
    let link = if interface.link == "ip" { ", frames are IP packets" } else { "" };
    let mut text = format!("interface  {}: {}{link}{shout}\n", interface.name, interface.mode);
    if let Some(note) = &interface.note {
        text.push_str(&format!("           {note}\n"));
    }
    text
}
