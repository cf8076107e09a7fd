//! Compares the acknowledgements with a valid cookie that the program passes with those that reach the kernel's listeners.
//!
//! A firewall is between the two, and it has seen neither the SYN nor the answer. Its rules do not tell in general what it does with the acknowledgement, but both
//! ends count: the program counts packets that pass, the kernel counts those that become connections.

/// The number of acknowledgements that is enough to tell. A client that sends data right behind its acknowledgement has up to ten more packets
/// that pass before there is a connection, and all of them belong to one connection.
const ENOUGH: u64 = 20;

/// Numbers of acknowledgements with a valid cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::daemon) struct ArrivalCount {
    /// How many the kernel program let pass. This counter is read before `received`.
    pub(in crate::daemon) passed: u64,
    /// How many the kernel's TCP received.
    pub(in crate::daemon) received: u64,
}

/// The counts at the last look, and the difference over the last few acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Arrivals {
    before: Option<ArrivalCount>,
    last: Option<ArrivalCount>,
}

impl Arrivals {
    /// The arrivals before the first look at the counters.
    pub(in crate::daemon) const NONE: Self = Self { before: None, last: None };

    /// Returns the arrivals after another look at the counters.
    pub(in crate::daemon) fn after(self, now: ArrivalCount) -> Self {
        let Some(before) = self.before else { return Self { before: Some(now), ..self } };
        // Counters of maps that were replaced start anew.
        let passed = now.passed.saturating_sub(before.passed);
        if now.passed >= before.passed && passed < ENOUGH {
            return self;
        }
        let last = ArrivalCount { passed, received: now.received.saturating_sub(before.received) };
        Self { before: Some(now), last: (passed >= ENOUGH).then_some(last).or(self.last) }
    }

    /// Returns the last counts if hardly any acknowledgements arrived.
    pub(in crate::daemon) fn cut_off(self) -> Option<ArrivalCount> {
        self.last.filter(|last| last.received * ENOUGH < last.passed)
    }

    /// Whether the last acknowledgements were seen to arrive.
    pub(super) fn are_well(self) -> bool {
        self.last.is_some() && self.cut_off().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(looks: &[(u64, u64)]) -> Arrivals {
        let look =
            |arrivals: Arrivals, &(passed, received)| arrivals.after(ArrivalCount { passed, received });
        looks.iter().fold(Arrivals::NONE, look)
    }

    #[test]
    fn what_passes_and_never_arrives_is_noticed_once_there_is_enough_of_it() {
        assert_eq!(after(&[(100, 7), (119, 7)]), after(&[(100, 7)]), "too few to tell");
        assert_eq!(
            after(&[(100, 7), (110, 7), (120, 7)]).cut_off(),
            Some(ArrivalCount { passed: 20, received: 0 })
        );
        assert!(!after(&[(100, 7)]).are_well(), "nothing is known yet");
    }

    #[test]
    fn a_connection_that_begins_with_a_burst_is_well() {
        let two_connections = after(&[(0, 0), (22, 2)]);
        assert_eq!((two_connections.cut_off(), two_connections.are_well()), (None, true));
    }

    #[test]
    fn a_rule_that_is_mended_is_noticed_too_and_so_is_the_next_that_breaks() {
        let broken = after(&[(0, 0), (50, 0)]);
        assert!(broken.cut_off().is_some());
        let mended = broken.after(ArrivalCount { passed: 80, received: 30 });
        assert!(mended.are_well());
        assert!(mended.after(ArrivalCount { passed: 200, received: 31 }).cut_off().is_some());
    }

    #[test]
    fn counters_that_start_anew_are_no_arrivals() {
        let anew = after(&[(1_000, 1_000), (5, 0)]);
        assert_eq!((anew.cut_off(), anew.are_well()), (None, false));
        assert!(anew.after(ArrivalCount { passed: 30, received: 25 }).are_well());
    }
}
