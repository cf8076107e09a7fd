//! A fault as cargo-mutants lists it: its place, and the text that replaces the code there.

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

/// The kind of change that a fault makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A function returns a fixed value.
    Value,
    /// An operator is replaced by another one or removed.
    Operator,
    /// An arm of a match is removed.
    Arm,
    /// The condition of an arm is always or never true.
    Guard,
    /// A field gets its value from the structure that the rest of the fields come from.
    Field,
}

/// A place in a file: line and column from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The name of the fault: file, line, column and change.
    pub(super) name: String,
    /// The path of the file, relative to the root of the workspace.
    pub(super) file: String,
    pub(super) start: Place,
    pub(super) end: Place,
    pub(super) replacement: String,
    pub(super) kind: Kind,
}

/// Reads the faults in the output of `cargo mutants --list --json`.
pub(super) fn listed(json: &str) -> Result<Vec<Fault>> {
    let list: Vec<Value> = serde_json::from_str(json).context("cargo-mutants lists no JSON")?;
    let fault = |value: &Value| fault(value).with_context(|| format!("not a fault: {value}"));
    list.iter().map(fault).collect()
}

fn fault(value: &Value) -> Result<Fault> {
    let text = |name: &str| value[name].as_str().map(str::to_owned).ok_or_else(|| anyhow!("no {name}"));
    let number = |value: &Value| value.as_u64().map(|number| number as usize).context("no number");
    let place = |value: &Value| {
        anyhow::Ok(Place { line: number(&value["line"])?, column: number(&value["column"])? })
    };
    let kind = match value["genre"].as_str() {
        Some("FnValue") => Kind::Value,
        Some("BinaryOperator" | "UnaryOperator") => Kind::Operator,
        Some("MatchArm") => Kind::Arm,
        Some("MatchArmGuard") => Kind::Guard,
        Some("StructField") => Kind::Field,
        other => return Err(anyhow!("genre {other:?} is not known here")),
    };
    Ok(Fault {
        name: text("name")?,
        file: text("file")?,
        start: place(&value["span"]["start"])?,
        end: place(&value["span"]["end"])?,
        replacement: text("replacement")?,
        kind,
    })
}

impl Place {
    /// Returns how many bytes of a text are before this place.
    pub(super) fn offset(self, text: &str) -> Option<usize> {
        let before: usize = text.split_inclusive('\n').take(self.line - 1).map(str::len).sum();
        let line = text.get(before..)?;
        let column = line.char_indices().map(|(at, _)| at).chain([line.len()]).nth(self.column - 1)?;
        Some(before + column)
    }
}

impl Fault {
    /// Returns the text of a file with the fault in it.
    pub(super) fn put_into(&self, source: &str) -> Option<String> {
        let (start, end) = (self.start.offset(source)?, self.end.offset(source)?);
        Some([source.get(..start)?, &self.replacement, source.get(end..)?].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = r#"[{
        "name": "a/src/b.rs:2:9: replace + with - in f",
        "package": "a",
        "file": "a/src/b.rs",
        "function": { "function_name": "f", "return_type": "-> u8" },
        "span": { "start": { "line": 2, "column": 9 }, "end": { "line": 2, "column": 10 } },
        "replacement": "-",
        "genre": "BinaryOperator"
    }]"#;

    #[test]
    fn a_fault_is_read_from_the_list_and_put_into_its_file() {
        let faults = listed(LISTED).unwrap();
        let put = faults[0].put_into("fn f(x: u8) -> u8 {\n    ä x + 1\n}\n").unwrap();
        assert_eq!(put, "fn f(x: u8) -> u8 {\n    ä x - 1\n}\n");
    }

    #[test]
    fn a_kind_of_fault_that_is_new_is_an_error_and_not_left_out() {
        let error = listed(&LISTED.replace("BinaryOperator", "Weather")).unwrap_err();
        assert!(format!("{error:#}").contains("Weather"), "{error:#}");
    }
}
