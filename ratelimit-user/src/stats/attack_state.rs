//! The attack state: how hard untracked sources hit the host.
//!
//! The kernel program defends itself without it: budgets and totals refuse untracked sources first. The attack state says in one
//! word that this is happening. It depends on what untracked sources were refused, never on blocked traffic: an attacker that is blocked
//! already must not change it.

/// The host's attack state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttackState {
    /// Few refused packets and few new sources.
    #[default]
    Normal,
    /// Many new sources, or a service or the host over its total.
    Elevated,
    /// Packets of untracked sources are refused in large numbers.
    Flood,
}

impl AttackState {
    /// The word for the state in `status` and the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Elevated => "elevated",
            Self::Flood => "flood",
        }
    }

    fn calmer(self) -> Self {
        match self {
            Self::Flood => Self::Elevated,
            Self::Elevated | Self::Normal => Self::Normal,
        }
    }
}

/// Counts of one second, from which the attack state follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Sources that were entered into the table.
    pub promoted: u64,
    /// Packets of sources that needed an entry and got none.
    pub refused_newcomers: u64,
    /// Packets over the total of a service or of the host.
    pub over_total: u64,
    /// Entries that all CPUs together may make in a second.
    pub budget: u64,
}

/// Packets over a total, per second, that make the attack state elevated.
const ELEVATED_OVER_TOTAL: u64 = 1_000;
/// Packets over a total, per second, that make the attack state a flood: more than any misconfigured client sends.
const FLOOD_OVER_TOTAL: u64 = 50_000;
/// Calm seconds before the attack state relaxes by one step.
const CALM_SECONDS: u32 = 10;

impl Pressure {
    /// The attack state for this second alone, with thresholds divided by `ease`.
    fn calls_for(&self, ease: u64) -> AttackState {
        let over_total = self.over_total.saturating_mul(ease);
        let refused = self.refused_newcomers.saturating_mul(ease);
        if refused >= self.budget.max(1) || over_total >= FLOOD_OVER_TOTAL {
            AttackState::Flood
        } else if refused > 0
            || self.promoted.saturating_mul(2 * ease) >= self.budget.max(1)
            || over_total >= ELEVATED_OVER_TOTAL
        {
            AttackState::Elevated
        } else {
            AttackState::Normal
        }
    }
}

/// The attack state over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    attack_state: AttackState,
    calm_seconds: u32,
    changes: u64,
}

impl Watch {
    /// The attack state now.
    pub fn attack_state(&self) -> AttackState {
        self.attack_state
    }

    /// How often the attack state has changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The watch after one more second. Rises at once; relaxes one step after ten seconds below half of what raised it.
    #[must_use]
    pub fn after(self, pressure: &Pressure) -> Self {
        let called_for = pressure.calls_for(1);
        if called_for > self.attack_state {
            return self.moved_to(called_for);
        }
        if pressure.calls_for(2) >= self.attack_state {
            return Self { calm_seconds: 0, ..self };
        }
        if self.calm_seconds + 1 >= CALM_SECONDS {
            return self.moved_to(self.attack_state.calmer());
        }
        Self { calm_seconds: self.calm_seconds + 1, ..self }
    }

    fn moved_to(self, attack_state: AttackState) -> Self {
        Self { attack_state, calm_seconds: 0, changes: self.changes + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Pressure = Pressure { promoted: 3, refused_newcomers: 0, over_total: 0, budget: 100_000 };
    const FLOOD: Pressure = Pressure { over_total: 2_000_000, ..QUIET };
    const BUSY: Pressure = Pressure { over_total: 2_000, ..QUIET };

    fn after(watch: Watch, seconds: &[Pressure]) -> Watch {
        seconds.iter().fold(watch, Watch::after)
    }

    #[test]
    fn a_flood_is_called_one_at_once_and_relaxes_step_by_step() {
        let watch = after(Watch::default(), &[QUIET, FLOOD]);
        assert_eq!(watch.attack_state(), AttackState::Flood);
        let watch = after(watch, &[QUIET; 9]);
        assert_eq!(watch.attack_state(), AttackState::Flood, "nine calm seconds are not enough");
        let watch = after(watch, &[QUIET; 1]);
        assert_eq!(watch.attack_state(), AttackState::Elevated);
        let watch = after(watch, &[QUIET; 10]);
        assert_eq!((watch.attack_state(), watch.changes()), (AttackState::Normal, 3));
    }

    #[test]
    fn pressure_that_comes_and_goes_does_not_make_it_flap() {
        let mut watch = Watch::default();
        for _ in 0..100 {
            watch = after(watch, &[FLOOD, QUIET, QUIET, BUSY]);
        }
        assert_eq!((watch.attack_state(), watch.changes()), (AttackState::Flood, 1));
    }

    #[test]
    fn pressure_between_half_the_threshold_and_all_of_it_keeps_the_attack_state() {
        let just_below = Pressure { over_total: ELEVATED_OVER_TOTAL - 1, ..QUIET };
        assert_eq!(
            after(Watch::default(), &[just_below; 50]).attack_state(),
            AttackState::Normal,
            "it does not raise it"
        );
        let watch = after(Watch::default(), &[BUSY]);
        assert_eq!(
            after(watch, &[just_below; 50]).attack_state(),
            AttackState::Elevated,
            "nor does it let it relax"
        );
    }

    #[test]
    fn new_sources_raise_it_by_what_they_use_of_the_budget() {
        let half = Pressure { promoted: 50_000, ..QUIET };
        assert_eq!(after(Watch::default(), &[half]).attack_state(), AttackState::Elevated);
        let refused = Pressure { promoted: 100_000, refused_newcomers: 200_000, ..QUIET };
        assert_eq!(after(Watch::default(), &[refused]).attack_state(), AttackState::Flood);
    }
}
