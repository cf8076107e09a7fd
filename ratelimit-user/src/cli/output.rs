//! How answers are shown.

use std::io::{self, Write as _};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::json;

use crate::{
    failure::{ExitCode, Failure},
    hangup::reader_has_gone,
};

/// Form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Prints to standard output. A reader that has gone away (`| head`) is no failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    print_if_read(text).map(|_| ())
}

/// Prints to standard output, and says whether there still is a reader.
pub(super) fn print_if_read(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        // A terminal that has gone is an input/output error, as a broken disk is.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe || reader_has_gone() => Ok(false),
        Err(error) => Err(Failure::new(ExitCode::Found, format!("cannot write the answer: {error}"))),
    }
}

/// Version of every JSON answer. It grows when a field changes its name or its meaning; fields that are added leave it as it is.
const JSON_VERSION: u32 = 1;

/// An answer with the version in front.
#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    answer: &'a T,
}

/// Prints an object as JSON, with the version of its shape in it.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = match has_version(value)? {
        true => serde_json::to_string_pretty(value),
        false => serde_json::to_string_pretty(&Versioned { version: JSON_VERSION, answer: value }),
    };
    print(&(text.map_err(not_written)? + "\n"))
}

/// An object as one line of JSON, with the version of its shape in it.
pub(super) fn json_line(value: &impl Serialize) -> Result<String, Failure> {
    let text = match has_version(value)? {
        true => serde_json::to_string(value),
        false => serde_json::to_string(&Versioned { version: JSON_VERSION, answer: value }),
    };
    Ok(text.map_err(not_written)? + "\n")
}

/// Whether an answer brings its version along: what the daemon streams to several readers does.
fn has_version(value: &impl Serialize) -> Result<bool, Failure> {
    Ok(serde_json::to_value(value).map_err(not_written)?.get("version").is_some())
}

#[expect(clippy::needless_pass_by_value, reason = "what map_err hands over")]
fn not_written(error: serde_json::Error) -> Failure {
    Failure::new(ExitCode::Found, format!("cannot write the answer as JSON: {error}"))
}

/// Prints what went wrong as JSON, for whoever asked for JSON: on one line, because some verbs answer line by line. `code` is the exit code.
pub(super) fn print_error(message: &str, code: u8) {
    // A reader that has gone away is told nothing.
    let _unread =
        json_line(&json!({ "error": { "message": message, "code": code } })).and_then(|line| print(&line));
}

/// Whether the words of a command line ask for JSON. Words are asked, not the parsed command: a command that cannot be parsed is answered
/// in JSON too.
pub(super) fn asks_for_json(words: impl IntoIterator<Item = String>) -> bool {
    let words: Vec<String> = words.into_iter().take_while(|word| word != "--").collect();
    words.iter().any(|word| word == "--output=json")
        || words.windows(2).any(|pair| pair[0] == "--output" && pair[1] == "json")
}

/// Prints a sentence about an order that was carried out.
pub(super) fn print_done(output: Output, message: &str) -> Result<(), Failure> {
    match output {
        Output::Text => print(&format!("{message}\n")),
        Output::Json => print_json(&json!({ "done": message })),
    }
}

/// Prints a complaint to standard error, line by line as it is.
pub(super) fn complain(message: &str) {
    let _unread = writeln!(io::stderr().lock(), "{message}");
}

/// Rows as columns: left-aligned, numbers to the right, two spaces between.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&header).chain(rows) {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let number = cell.starts_with(|c: char| c.is_ascii_digit()) && cell.parse::<f64>().is_ok();
            if number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A number of things whose plural ends in s.
pub(super) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_its_version_in_front_and_keeps_its_own_order() {
        #[derive(Serialize)]
        struct Shown {
            totals: u64,
            drops: [u64; 2],
        }
        let line = json_line(&Shown { totals: 3, drops: [1, 2] }).unwrap();
        assert_eq!(line, "{\"version\":1,\"totals\":3,\"drops\":[1,2]}\n");
        assert_eq!(json_line(&json!({ "lost": 7 })).unwrap(), "{\"version\":1,\"lost\":7}\n");
        let has_one = json!({ "version": 1, "lost": 7 });
        assert_eq!(json_line(&has_one).unwrap().matches("version").count(), 1);
    }

    #[test]
    fn a_command_line_that_cannot_be_parsed_still_says_whether_it_wants_json() {
        for (words, wanted) in [
            ("status --output json", true),
            ("status --output=json --nonsense", true),
            ("block add nonsense --output json", true),
            ("status --output text", false),
            ("status", false),
            ("status --output", false),
            ("explain -- --output json", false),
        ] {
            assert_eq!(asks_for_json(words.split(' ').map(str::to_owned)), wanted, "{words}");
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_numbers_stand_right() {
        let rows = [vec!["blocked".into(), "7".into()], vec!["x".into(), "1234".into()]];
        let expected = "reason   n\nblocked     7\nx        1234\n";
        assert_eq!(table(&["reason", "n"], &rows), expected);
    }
}
