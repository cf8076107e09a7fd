//! The parts of the comparison, by name.

use anyhow::{Result, bail};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Resp,
    Http,
    Grpc,
    Library,
    Latency,
    Lease,
    Memory,
}

impl Part {
    const ALL: [Self; 7] =
        [Self::Resp, Self::Http, Self::Grpc, Self::Library, Self::Latency, Self::Lease, Self::Memory];

    fn name(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Library => "library",
            Self::Latency => "latency",
            Self::Lease => "lease",
            Self::Memory => "memory",
        }
    }

    /// Those that are named, in the order of the report; all if none is.
    pub(super) fn chosen(only: &[String]) -> Result<Vec<Self>> {
        let names = Self::ALL.map(Self::name);
        if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
            bail!("--only {unknown}: no such thing; parts of --requests are {}", names.join(", "));
        }
        let is_chosen = |part: &Self| only.is_empty() || only.iter().any(|name| name == part.name());
        Ok(Self::ALL.into_iter().filter(is_chosen).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(only: &[&str]) -> Result<Vec<Part>> {
        Part::chosen(&only.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn everything_is_chosen_unless_something_is_named() {
        assert_eq!(chosen(&[]).unwrap(), Part::ALL);
        assert_eq!(chosen(&["lease", "resp"]).unwrap(), [Part::Resp, Part::Lease]);
    }

    #[test]
    fn a_name_that_does_not_exist_is_answered_with_those_that_do() {
        let error = chosen(&["resp", "spoofed"]).unwrap_err().to_string();
        assert!(error.contains("--only spoofed") && error.contains("grpc, library"), "{error}");
    }
}
