//! What of all there is runs this time: the quick or the full set, narrowed by `--only`.

use anyhow::{Result, bail};
use clap::ValueEnum;

/// When something is part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    /// Also with `--quick`.
    Always,
    /// Without `--quick`.
    Full,
    /// Only when `--only` names it.
    Asked,
}

/// The parts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    OneCore,
    TwoCores,
    Paths,
    Growth,
    SameSource,
    Instructions,
    FrameSize,
    Honest,
    Known,
    Apply,
}

impl Section {
    pub(crate) fn name(self) -> String {
        name(&self)
    }

    /// CPUs that it takes: on the wire one for the packets, and one for reading the counters.
    pub(crate) fn cpus(self) -> usize {
        match self {
            Self::OneCore
            | Self::TwoCores
            | Self::SameSource
            | Self::FrameSize
            | Self::Honest
            | Self::Known => 2,
            Self::Paths | Self::Growth | Self::Instructions | Self::Apply => 1,
        }
    }

    fn runs(self) -> Runs {
        if matches!(self, Self::OneCore | Self::Honest) { Runs::Always } else { Runs::Full }
    }
}

/// The name that the command line has for a value.
pub(crate) fn name<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// The names of all values of a kind.
pub(crate) fn names<T: ValueEnum>() -> Vec<String> {
    T::value_variants().iter().map(name).collect()
}

/// The user's choice. Names of one kind narrow that kind only: `--only spoofed --only ours` is one cell, and its
/// yardstick.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    quick: bool,
    sections: Vec<String>,
    cases: Vec<String>,
    contestants: Vec<String>,
}

impl Selection {
    pub(crate) fn new(quick: bool, only: &[String], cases: &[&str], contestants: &[&str]) -> Result<Self> {
        let sections = names::<Section>();
        let sections: Vec<&str> = sections.iter().map(String::as_str).collect();
        let mut chosen = Self { quick, ..Self::default() };
        for name in only {
            let kind = [
                (&sections[..], &mut chosen.sections),
                (cases, &mut chosen.cases),
                (contestants, &mut chosen.contestants),
            ]
            .into_iter()
            .find_map(|(known, names)| known.contains(&name.as_str()).then_some(names));
            let Some(names) = kind else {
                bail!(
                    "--only {name}: no such thing; parts are {}; cases are {}; contestants are {}",
                    sections.join(", "),
                    cases.join(", "),
                    contestants.join(", ")
                );
            };
            names.push(name.clone());
        }
        // A case or a contestant is something on the wire; asking for one is not asking for the other tables.
        if chosen.sections.is_empty() && !(chosen.cases.is_empty() && chosen.contestants.is_empty()) {
            chosen.sections = vec![Section::OneCore.name()];
        }
        Ok(chosen)
    }

    pub(crate) fn quick(&self) -> bool {
        self.quick
    }

    pub(crate) fn section(&self, section: Section) -> bool {
        self.part(&self.sections, &section.name(), section.runs())
    }

    pub(crate) fn case(&self, name: &str, runs: Runs) -> bool {
        self.part(&self.cases, name, runs)
    }

    pub(crate) fn contestant(&self, name: &str, runs: Runs) -> bool {
        self.part(&self.contestants, name, runs)
    }

    fn part(&self, named: &[String], name: &str, runs: Runs) -> bool {
        match runs {
            _ if !named.is_empty() => named.iter().any(|one| one == name),
            Runs::Always => true,
            Runs::Full => !self.quick,
            Runs::Asked => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(quick: bool, only: &[&str]) -> Result<Selection> {
        let only: Vec<String> = only.iter().map(|&name| name.into()).collect();
        Selection::new(quick, &only, &["1", "spoofed"], &["bare", "ours"])
    }

    #[test]
    fn without_names_quick_leaves_out_what_only_the_full_run_has() {
        let quick = select(true, &[]).unwrap();
        assert!(quick.case("1", Runs::Always) && !quick.case("spoofed", Runs::Full));
        assert!(quick.section(Section::Honest) && !quick.section(Section::FrameSize));
        let full = select(false, &[]).unwrap();
        assert!(full.case("spoofed", Runs::Full) && !full.case("1", Runs::Asked));
        assert!(Section::value_variants().iter().all(|section| full.section(*section)));
    }

    #[test]
    fn a_name_narrows_its_own_kind_and_brings_in_what_is_otherwise_left_out() {
        let one = select(true, &["spoofed"]).unwrap();
        assert!(one.case("spoofed", Runs::Asked) && !one.case("1", Runs::Always));
        assert!(one.contestant("ours", Runs::Always));
        assert!(one.section(Section::OneCore) && !one.section(Section::Paths));
        let two = select(true, &["two-cores", "ours"]).unwrap();
        assert!(two.section(Section::TwoCores) && !two.section(Section::OneCore));
    }
}
