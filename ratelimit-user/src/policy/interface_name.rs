//! The name of a network interface, valid by the kernel's rules.

use std::{fmt, str::FromStr};

/// The kernel's limit (IFNAMSIZ less the closing zero).
const MAX_LEN: usize = 15;

/// A name that an interface could have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceName(String);

/// Why a text is not an interface name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterfaceNameError {
    /// The name is empty.
    #[error("interface name is empty; use one such as \"eth0\"")]
    Empty,
    /// The name is longer than the kernel takes.
    #[error("interface name {0:?} is {len} bytes long; the kernel takes at most {MAX_LEN}", len = .0.len())]
    TooLong(String),
    /// The name has a character that the kernel refuses.
    #[error("interface name {0:?} has a slash, a colon or white space in it, which no interface has")]
    BadCharacter(String),
}

impl FromStr for InterfaceName {
    type Err = InterfaceNameError;

    fn from_str(text: &str) -> Result<Self, InterfaceNameError> {
        if text.is_empty() {
            return Err(InterfaceNameError::Empty);
        }
        if text.len() > MAX_LEN {
            return Err(InterfaceNameError::TooLong(text.to_owned()));
        }
        let refused = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
        if text.contains(refused) || text == "." || text == ".." {
            return Err(InterfaceNameError::BadCharacter(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_kernel_would_refuse_are_refused_here() {
        for good in ["eth0", "eth0.100", "enp3s0f1np1", "br-lan", "a"] {
            assert_eq!(good.parse::<InterfaceName>().unwrap().to_string(), good);
        }
        for bad in ["", "sixteen-bytes-xx", "a/b", "a b", "a:b", ".", "..", "a\n"] {
            assert!(bad.parse::<InterfaceName>().is_err(), "{bad:?}");
        }
    }
}
