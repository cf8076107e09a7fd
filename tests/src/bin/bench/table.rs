//! Text in columns: the first to the left, the others to the right.

/// A table under construction.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Begins with the head of each column.
    pub(crate) fn new(heads: Vec<String>) -> Self {
        Self { rows: vec![heads] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// One line a row, indented by two spaces.
    pub(crate) fn shown(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |at: usize| self.rows.iter().filter_map(|row| row.get(at)).map(|c| c.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::from(" ");
            for (at, cell) in row.iter().enumerate() {
                let width = widths[at];
                line.push_str(&if at == 0 {
                    format!(" {cell:<width$}")
                } else {
                    format!("  {cell:>width$}")
                });
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(vec!["".into(), "1 source".into(), "x".into()]);
        table.row(vec!["bare".into(), "1.00".into(), "1.00".into()]);
        table.row(vec!["ratelimit".into(), "-".into()]);
        assert_eq!(
            table.shown(),
            "             1 source     x\n  bare           1.00  1.00\n  ratelimit         -\n"
        );
    }
}
