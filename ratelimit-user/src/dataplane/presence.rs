//! Whether an interface of this network namespace has our program, another program, or none.

use super::{
    DataplaneError,
    interface::{self, Attached, Interface},
    pin::PinDir,
    pinned_link,
};

/// The XDP program on an interface, by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The interface does not exist.
    Missing,
    /// The interface has no XDP program.
    Free,
    /// The interface has our program.
    Ours(Attached),
    /// The interface has a program that is not ours.
    Foreign(Attached),
}

impl Presence {
    /// Looks at one interface.
    pub fn of(pins: &PinDir, name: &str) -> Result<Self, DataplaneError> {
        Ok(Self::among(pins, &interface::list()?, name))
    }

    /// Looks at one interface among those listed.
    pub fn among(pins: &PinDir, all: &[Interface], name: &str) -> Self {
        let Some(found) = all.iter().find(|interface| interface.name == name) else { return Self::Missing };
        match found.attached {
            None => Self::Free,
            Some(attached) if pinned_link::is_ours(pins, name, attached) => Self::Ours(attached),
            Some(attached) => Self::Foreign(attached),
        }
    }

    /// Returns the words of `status`: `native`, `generic`, `foreign` or `detached`, and the reason for the last two.
    pub fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Ours(attached) => (attached.mode.name(), None),
            Self::Foreign(_) => ("foreign", Some("another program has taken the place of ours")),
            Self::Free => ("detached", Some("our program is gone")),
            Self::Missing => ("detached", Some("the interface is gone")),
        }
    }
}
