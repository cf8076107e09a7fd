//! Whoever takes part in a comparison, and the rounds: everybody in turn, the first one another each time, so that whatever the machine
//! does in the meantime hits all alike.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::{
    comparison::{Cell, Comparison, Sample},
    interrupt::Interrupt,
    progress,
    rounds::Pace,
};

/// One that is asked for a while, again and again.
pub(super) struct Entrant<'e> {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    turn: Box<dyn FnMut(Duration) -> Result<Sample> + 'e>,
}

impl<'e> Entrant<'e> {
    pub(super) fn new(
        name: &'static str,
        title: &'static str,
        turn: impl FnMut(Duration) -> Result<Sample> + 'e,
    ) -> Self {
        Self { name, title, turn: Box::new(turn) }
    }

    pub(super) fn take_turn(&mut self, round: Duration) -> Result<Sample> {
        (self.turn)(round).with_context(|| format!("while measuring {}", self.title))
    }
}

/// Measures all entrants, after one round that does not count. Who cannot do that round does not take part, and the notes say why.
pub(super) fn compare(
    mut comparison: Comparison,
    mut entrants: Vec<Entrant<'_>>,
    pace: Pace,
    interrupt: &Interrupt,
    notes: &mut Vec<String>,
) -> Result<Comparison> {
    progress::show(&format!("{}, first round", comparison.title));
    let mut fit = Vec::new();
    for mut entrant in entrants.drain(..) {
        let tried = entrant.take_turn(pace.round);
        // Ctrl-C reaches clients too, and they fail of it.
        interrupt.check()?;
        match tried {
            Ok(_) => fit.push(entrant),
            Err(error) => notes.push(not_measured(entrant.title, &error)),
        }
    }
    comparison.cells = fit.iter().map(|one| Cell::new(one.name, one.title)).collect();
    let title = comparison.title.clone();
    pace.in_turn(&title, fit.len(), interrupt, |_, at| {
        comparison.cells[at].add(fit[at].take_turn(pace.round)?);
        Ok(())
    })?;
    Ok(comparison)
}

/// A note about somebody who does not take part, in one line, whatever a program complained about in several.
pub(super) fn not_measured(who: &str, why: &anyhow::Error) -> String {
    let lines: Vec<String> = format!("{why:#}").lines().map(|line| line.trim().to_owned()).collect();
    format!("not measured: {who}: {}", lines.join("; "))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use anyhow::bail;

    use super::*;
    use crate::comparison::Unit;

    const PACE: Pace = Pace { rounds: 2, round: Duration::from_millis(1) };

    fn measured(entrants: Vec<Entrant<'_>>) -> (Result<Comparison>, Vec<String>) {
        let mut notes = Vec::new();
        let comparison = Comparison::new("x", "x", Unit::DecisionsPerSecond);
        let done = compare(comparison, entrants, PACE, &Interrupt::watch().unwrap(), &mut notes);
        (done, notes)
    }

    #[test]
    fn everybody_has_a_turn_in_each_round_and_the_first_round_does_not_count() {
        let order = RefCell::new(String::new());
        let entrant = |name: &'static str| {
            let (order, mut value) = (&order, 0.0);
            Entrant::new(name, name, move |_| {
                order.borrow_mut().push_str(name);
                value += 1.0;
                Ok(Sample { value, beside: None })
            })
        };
        let (comparison, notes) = measured(vec![entrant("a"), entrant("b"), entrant("c")]);
        let rounds: Vec<_> = comparison.unwrap().cells.into_iter().map(|cell| cell.rounds).collect();
        assert_eq!(rounds, [[2.0, 3.0], [2.0, 3.0], [2.0, 3.0]]);
        assert_eq!(*order.borrow(), "abcabcbca");
        assert!(notes.is_empty());
    }

    #[test]
    fn who_cannot_do_the_first_round_is_left_out_and_told_of() {
        let works = Entrant::new("a", "A", |_| Ok(Sample { value: 1.0, beside: None }));
        let (comparison, notes) =
            measured(vec![Entrant::new("b", "B", |_| bail!("no such\n command")), works]);
        assert_eq!(comparison.unwrap().cells.len(), 1);
        assert_eq!(notes, ["not measured: B: while measuring B: no such; command"]);
    }
}
