//! How answers are shown.

use std::io::{self, Write as _};

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::{ExitCode, Failure};

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
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(ExitCode::Found, format!("cannot write the answer: {error}"))),
    }
}

/// Prints as JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| {
        Failure::new(ExitCode::Found, format!("cannot write the answer as JSON: {error}"))
    })?;
    print(&format!("{text}\n"))
}

/// Prints a sentence about an order that was carried out.
pub(super) fn print_done(output: Output, message: &str) -> Result<(), Failure> {
    match output {
        Output::Text => print(&format!("{message}\n")),
        Output::Json => print_json(&serde_json::json!({ "done": message })),
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
            let number =
                cell.starts_with(|c: char| c.is_ascii_digit()) && cell.chars().all(|c| c.is_ascii_digit());
            if number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_numbers_stand_right() {
        let rows = [vec!["blocked".into(), "7".into()], vec!["x".into(), "1234".into()]];
        let expected = "reason   n\nblocked     7\nx        1234\n";
        assert_eq!(table(&["reason", "n"], &rows), expected);
    }
}
