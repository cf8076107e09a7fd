//! The attack state: how hard the host is hit, in one word.
//!
//! The kernel program defends itself without it: budgets and totals refuse untracked sources first. The attack state follows from what untracked
//! sources were refused, and is never `normal` while an attack goes on.

/// The host's attack state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttackState {
    /// No attack goes on, and there are few refused packets and few new sources.
    #[default]
    Normal,
    /// An attack goes on, or there are many new sources, or a service or the host is over its total.
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
    /// The attack state that follows from refused packets and new sources.
    by_pressure: AttackState,
    /// Whether an attack goes on.
    is_attacked: bool,
    calm_seconds: u32,
    changes: u64,
}

impl Watch {
    /// The attack state now.
    pub fn attack_state(&self) -> AttackState {
        if self.is_attacked { self.by_pressure.max(AttackState::Elevated) } else { self.by_pressure }
    }

    /// How often the attack state has changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The watch after one more second. Rises at once; relaxes one step after ten seconds below half of what raised it.
    #[must_use]
    pub fn after(self, pressure: &Pressure) -> Self {
        let called_for = pressure.calls_for(1);
        if called_for > self.by_pressure {
            return self.moved_to(Self { by_pressure: called_for, calm_seconds: 0, ..self });
        }
        if pressure.calls_for(2) >= self.by_pressure {
            return Self { calm_seconds: 0, ..self };
        }
        if self.calm_seconds + 1 >= CALM_SECONDS {
            let by_pressure = self.by_pressure.calmer();
            return self.moved_to(Self { by_pressure, calm_seconds: 0, ..self });
        }
        Self { calm_seconds: self.calm_seconds + 1, ..self }
    }

    /// The watch once an attack goes on, or none does any more.
    #[must_use]
    pub fn with_attack(self, is_attacked: bool) -> Self {
        self.moved_to(Self { is_attacked, ..self })
    }

    fn moved_to(self, next: Self) -> Self {
        let is_change = next.attack_state() != self.attack_state();
        Self { changes: self.changes + u64::from(is_change), ..next }
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
    fn the_attack_state_is_not_normal_while_an_attack_goes_on() {
        let attacked = Watch::default().with_attack(true);
        assert_eq!((attacked.attack_state(), attacked.changes()), (AttackState::Elevated, 1));
        let attacked = after(attacked, &[QUIET; 50]);
        assert_eq!((attacked.attack_state(), attacked.changes()), (AttackState::Elevated, 1));
        let flood = after(attacked, &[FLOOD]);
        assert_eq!(flood.with_attack(true).attack_state(), AttackState::Flood);
        let over = after(flood, &[QUIET; 20]).with_attack(false);
        assert_eq!((over.attack_state(), over.changes()), (AttackState::Normal, 4));
    }

    #[test]
    fn new_sources_raise_it_by_what_they_use_of_the_budget() {
        let half = Pressure { promoted: 50_000, ..QUIET };
        assert_eq!(after(Watch::default(), &[half]).attack_state(), AttackState::Elevated);
        let refused = Pressure { promoted: 100_000, refused_newcomers: 200_000, ..QUIET };
        assert_eq!(after(Watch::default(), &[refused]).attack_state(), AttackState::Flood);
    }
}
