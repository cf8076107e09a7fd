//! What of all there is runs this time: the quick or the full set, narrowed by `--only`.

use anyhow::{Result, bail};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    OneCore,
    TwoCores,
    Paths,
    Growth,
    SameSource,
    Instructions,
    FrameSize,
    Honest,
    Apply,
}

impl Section {
    pub(crate) const ALL: [Self; 9] = [
        Self::OneCore,
        Self::TwoCores,
        Self::Paths,
        Self::Growth,
        Self::SameSource,
        Self::Instructions,
        Self::FrameSize,
        Self::Honest,
        Self::Apply,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OneCore => "one-core",
            Self::TwoCores => "two-cores",
            Self::Paths => "paths",
            Self::Growth => "growth",
            Self::SameSource => "same-source",
            Self::Instructions => "instructions",
            Self::FrameSize => "frame-size",
            Self::Honest => "honest",
            Self::Apply => "apply",
        }
    }

    fn runs(self) -> Runs {
        match self {
            Self::OneCore | Self::Honest => Runs::Always,
            Self::TwoCores
            | Self::Paths
            | Self::Growth
            | Self::SameSource
            | Self::Instructions
            | Self::FrameSize
            | Self::Apply => Runs::Full,
        }
    }
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
        let sections = Section::ALL.map(Section::name);
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
            chosen.sections = vec![Section::OneCore.name().into()];
        }
        Ok(chosen)
    }

    pub(crate) fn quick(&self) -> bool {
        self.quick
    }

    pub(crate) fn section(&self, section: Section) -> bool {
        self.part(&self.sections, section.name(), section.runs())
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
        let full = select(false, &[]).unwrap();
        assert!(full.case("spoofed", Runs::Full) && !full.case("1", Runs::Asked));
        assert!(Section::ALL.iter().all(|section| full.section(*section)));
    }

    #[test]
    fn a_name_narrows_its_own_kind_and_brings_in_what_is_otherwise_left_out() {
        let one = select(true, &["spoofed"]).unwrap();
        assert!(one.case("spoofed", Runs::Asked) && !one.case("1", Runs::Always));
        assert!(one.contestant("ours", Runs::Always));
        assert!(one.section(Section::OneCore) && !one.section(Section::Paths));
    }

    #[test]
    fn a_part_of_the_run_is_chosen_by_its_name() {
        let paths = select(false, &["paths"]).unwrap();
        assert!(paths.section(Section::Paths) && !paths.section(Section::OneCore));
        let two = select(false, &["two-cores", "ours"]).unwrap();
        assert!(two.section(Section::TwoCores) && !two.section(Section::OneCore));
    }

    #[test]
    fn a_part_of_the_full_run_is_in_a_quick_one_when_it_is_named() {
        assert!(!select(true, &[]).unwrap().section(Section::FrameSize));
        assert!(select(true, &[]).unwrap().section(Section::Honest));
        assert!(select(true, &["frame-size"]).unwrap().section(Section::FrameSize));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = select(false, &["spoof"]).unwrap_err().to_string();
        assert!(error.contains("spoofed") && error.contains("one-core") && error.contains("bare"), "{error}");
    }
}
