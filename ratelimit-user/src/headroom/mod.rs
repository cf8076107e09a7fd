//! Whether the host could take more than it gets. Elastic limits give their extra only while it could.
//!
//! ```text
//! files of the kernel -> sample -> reading -> headroom
//! ```
//!
//! Only a sample touches files. Marks and hysteresis are arithmetic: whoever makes up a reading gets the answer a host would get.

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

/// Readings in a row with something above its high mark that end headroom: one alone may be a hiccup.
pub const STRAINED_READINGS: u32 = 2;
/// Readings in a row with everything below its low mark that bring it back.
pub const CALM_READINGS: u32 = 10;

/// The headroom over time, a reading a second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headroom {
    /// Why there is none.
    lost: Option<String>,
    /// Readings in a row that call for a change.
    streak: u32,
    changes: u64,
}

impl Headroom {
    /// Whether there is some.
    pub fn is_there(&self) -> bool {
        self.lost.is_none()
    }

    /// Why headroom was lost, if it is.
    pub fn reason(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// How often it was lost or came back.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Takes one reading.
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
