//! Text in columns: the first to the left, the others to the right.

/// A title and a table under it; nothing if the table has no rows.
pub(crate) fn titled(title: &str, heads: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let heads = heads.iter().map(ToString::to_string).collect();
    let lines: Vec<Vec<String>> = std::iter::once(heads).chain(rows).collect();
    let width =
        |at: usize| lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max();
    let mut text = format!("\n{title}\n");
    for line in &lines {
        let aligned = line.iter().enumerate().map(|(at, cell)| {
            let width = width(at).unwrap_or(0);
            if at == 0 { format!("  {cell:<width$}") } else { format!("  {cell:>width$}") }
        });
        text.push_str(aligned.collect::<String>().trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            vec![vec!["bare".into(), "1.00".into(), "1.00".into()], vec!["ratelimit".into(), "-".into()]];
        assert_eq!(
            titled("Speed", &["", "1 source", "x"], rows),
            "\nSpeed\n             1 source     x\n  bare           1.00  1.00\n  ratelimit         -\n"
        );
        assert_eq!(titled("Speed", &["", "1 source"], Vec::new()), "");
    }
}
