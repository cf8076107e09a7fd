//! Finds guarded interfaces that were renamed: the pin of a link has the name that its interface had when the link was made.

use super::{DataplaneError, interface::Interface, pin::PinDir, pinned_link};

/// A guarded interface that has another name than its pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The index of the interface.
    pub index: u32,
    /// The name of the pin.
    pub before: String,
    /// The name of the interface.
    pub now: String,
}

impl Renamed {
    /// Finds all interfaces that were renamed while no daemon looked.
    pub fn all(pins: &PinDir, interfaces: &[Interface]) -> Result<Vec<Self>, DataplaneError> {
        let mut renamed = Vec::new();
        for before in pins.linked_interfaces()? {
            let Some(index) = pinned_link::interface_index(pins, &before) else { continue };
            // An interface in another network namespace can have the same index. Then the interface here, if it has our program, has a pinned link of its own.
            if let Some(one) = Self::of(pins, interfaces, &before, index)
                && pinned_link::interface_index(pins, &one.now) != Some(index)
            {
                renamed.push(one);
            }
        }
        Ok(renamed)
    }

    /// Finds the guarded interface that was called `before`, if it has another name now.
    pub fn of(pins: &PinDir, interfaces: &[Interface], before: &str, index: u32) -> Option<Self> {
        let now = interfaces.iter().find(|interface| interface.index == index && interface.name != before)?;
        // An interface without our program is a new one that was given the index of one that is gone.
        pinned_link::is_ours(pins, before, now.attached?).then(|| Self {
            index,
            before: before.to_owned(),
            now: now.name.clone(),
        })
    }
}

/// Renames pins to the present names of their interfaces.
pub fn follow(pins: &PinDir, renamed: &[Renamed]) -> Result<(), DataplaneError> {
    // Pins are renamed in two steps, because names may have been swapped. No interface can have a name in between; if the daemon
    // ends there, the next one finds these pins as pins of renamed interfaces.
    let between = |one: &Renamed| format!(":{}", one.index);
    for one in renamed {
        if pinned_link::is_elsewhere(pins, &one.now) && !renamed.iter().any(|other| other.before == one.now) {
            let reason = "the link of an interface in another network namespace has its pin".to_owned();
            return Err(DataplaneError::Attach { interface: one.now.clone(), reason });
        }
    }
    for one in renamed {
        pins.rename_link(&one.before, &between(one))?;
    }
    for one in renamed {
        pins.rename_link(&between(one), &one.now)?;
    }
    Ok(())
}
