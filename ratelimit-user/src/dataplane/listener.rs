//! Finds where the running kernel keeps the settings of a listener from which it chooses the TCP window.

use std::{fmt, fs};

use ratelimit_common::abi::listener::{Offset, Offsets, UNKNOWN};

use super::btf::{Btf, Field};

const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// The kernel's flag `SOCK_RCVBUF_LOCK`: the application has set the size of its receive buffer.
const RECEIVE_LOCK: u32 = 2;
const SOCKET: [&str; 3] = ["inet_conn", "icsk_inet", "sk"];

/// Why the settings of listeners cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The kernel has no type information.
    NoTypes,
    /// The type information lacks this field, or has it with another size.
    NoField(&'static str),
    /// The kernel refused a program that reads listeners, for this reason.
    Refused(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTypes => write!(f, "{TYPES} is missing or not understood"),
            Self::NoField(name) => write!(f, "this kernel has no {name} as it is known here"),
            Self::Refused(reason) => f.write_str(reason),
        }
    }
}

/// Returns the offsets for the running kernel.
pub fn offsets() -> Result<Offsets, Unreadable> {
    let types = fs::read(TYPES).map_err(|_| Unreadable::NoTypes)?;
    // On big-endian machines bit fields are counted from the other end, which was never tested.
    if cfg!(target_endian = "big") {
        return Err(Unreadable::NoField("byte order"));
    }
    find(&Btf::parse(&types).ok_or(Unreadable::NoTypes)?)
}

fn find(types: &Btf<'_>) -> Result<Offsets, Unreadable> {
    let field = |path: &[&str]| types.field("tcp_sock", path);
    let of_socket = |rest: &[&str]| field(&[&SOCKET, rest].concat());
    let mut offsets = UNKNOWN;
    let mut put = |place: Offset, value| offsets[place as usize] = value;
    // The field must be within one byte: the whole byte, or one half of it.
    let locks = of_socket(&["sk_userlocks"])
        .filter(|field| (field.bit % 8).saturating_add(field.bits) <= 8 && field.bits >= 2);
    let locks = locks.ok_or(Unreadable::NoField("sk_userlocks"))?;
    put(Offset::Locks, locks.bit / 8);
    put(Offset::ReceiveLock, RECEIVE_LOCK << (locks.bit % 8));
    put(Offset::Buffer, of_size(of_socket(&["sk_rcvbuf"]), 4, "sk_rcvbuf")?);
    put(Offset::Clamp, of_size(field(&["window_clamp"]), 4, "window_clamp")?);
    put(Offset::Segment, of_size(field(&["rx_opt", "user_mss"]), 2, "user_mss")?);
    // One of the two fields is enough: a kernel with `scaling_ratio` no longer uses `sysctl_tcp_adv_win_scale`.
    let ratio = of_size(field(&["scaling_ratio"]), 1, "scaling_ratio").ok();
    let namespace = of_size(of_socket(&["__sk_common", "skc_net", "net"]), 8, "skc_net");
    // The lowest byte is enough, because the setting is between -31 and 31.
    let shift = types.field("net", &["ipv4", "sysctl_tcp_adv_win_scale"]);
    let shift =
        shift.filter(|field| field.bits >= 8 && field.bit.is_multiple_of(8)).map(|field| field.bit / 8);
    put(Offset::Ratio, ratio.unwrap_or(0));
    match (namespace, shift) {
        (Ok(namespace), Some(shift)) => {
            put(Offset::Namespace, namespace);
            put(Offset::SpaceShift, shift);
        }
        _ if ratio.is_some() => {}
        _ => return Err(Unreadable::NoField("scaling_ratio, nor sysctl_tcp_adv_win_scale")),
    }
    Ok(offsets)
}

/// Returns the offset in bytes of a field, if it has the expected size.
fn of_size(field: Option<Field>, bytes: u32, name: &'static str) -> Result<u32, Unreadable> {
    let fits = |field: &Field| field.bits == bytes * 8 && field.bit.is_multiple_of(8);
    field.filter(fits).map(|field| field.bit / 8).ok_or(Unreadable::NoField(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_says_where_everything_is() {
        let offsets = offsets().unwrap();
        assert_ne!(offsets[Offset::ReceiveLock as usize], 0);
        assert!(offsets[Offset::Buffer as usize] > 0 && offsets[Offset::Clamp as usize] > 0, "{offsets:?}");
    }

    #[test]
    fn a_field_of_another_size_is_none() {
        let field = |bit, bits| of_size(Some(Field { bit, bits }), 4, "x");
        assert_eq!(field(64, 32), Ok(8));
        for (bit, bits) in [(64, 16), (64, 64), (65, 32)] {
            assert_eq!(field(bit, bits), Err(Unreadable::NoField("x")));
        }
        assert_eq!(of_size(None, 4, "x"), Err(Unreadable::NoField("x")));
    }
}
