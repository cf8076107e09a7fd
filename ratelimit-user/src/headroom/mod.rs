//! Headroom: whether the host could take more traffic than it gets. Elastic limits give their margin only while there is headroom.
//!
//! ```text
//! files of the kernel -> sample -> reading -> headroom
//! ```
//!
//! Only a sample reads files. Marks and hysteresis are arithmetic, so a made-up reading gets the answer that a host would get.

mod percent;
mod pressure;
mod reading;
mod sample;
mod softnet;
mod stat;
#[cfg(test)]
mod tests;

pub use percent::Percent;
pub use reading::HeadroomReading;
pub use sample::Sample;

/// Readings in a row with a value at or above its high mark that end headroom: one alone may be a hiccup.
pub const STRAINED_READINGS: u32 = 2;
/// Readings in a row with every value below its low mark that bring headroom back.
pub const CALM_READINGS: u32 = 10;

/// The state of headroom over time, with one reading a second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headroom {
    /// Why headroom was lost; `None` while there is headroom.
    lost: Option<String>,
    /// Readings in a row that call for a change.
    streak: u32,
    changes: u64,
}

impl Headroom {
    /// Whether there is headroom.
    pub fn is_there(&self) -> bool {
        self.lost.is_none()
    }

    /// Returns why headroom was lost, if it is lost now.
    pub fn reason(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Returns how often headroom was lost or came back.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the state after one more reading.
    #[must_use]
    pub fn after(self, reading: &HeadroomReading) -> Self {
        let (calls_for_change, enough) = match &self.lost {
            None => (reading.strain().is_some(), STRAINED_READINGS),
            Some(_) => (reading.is_calm(), CALM_READINGS),
        };
        if !calls_for_change {
            return Self { streak: 0, ..self };
        }
        if self.streak + 1 < enough {
            return Self { streak: self.streak + 1, ..self };
        }
        let lost = if self.is_there() { reading.strain() } else { None };
        Self { lost, streak: 0, changes: self.changes + 1 }
    }
}
