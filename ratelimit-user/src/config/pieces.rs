//! Cuts a policy text into runs of plain prefixes and everything between them.
//!
//! Almost all of a long policy is lines such as `"203.0.113.0/24",` in a list. They need no TOML parser, and lines that have not changed
//! since the last reading are not parsed again. The rest, put together, is a short policy.
//!
//! Why the short policy with the runs put back means the same as the text: a run starts behind a line such as `sources = [`, which ends with `[`. In TOML without
//! multi-line strings, and with no comment on that line, this opens a list, and any number of strings with commas can be put there.

use std::ops::Range;

use crate::{
    overlap::overlap,
    policy::{Chunk, Prefix, Users},
};

/// Lines of a run in one piece: a change costs reading this many lines, and comparing this many prefixes.
const LINES: usize = 128;

/// A part of a text, made of whole lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextPiece {
    pub(super) at: Range<usize>,
    /// The prefixes of a run; `None` for anything else.
    pub(super) run: Option<Chunk>,
}

/// Prefixes that were cut out of the parsed text, and users that were checked before.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// Each run's place in the parsed text, and its chunks.
    pub(super) runs: Vec<(usize, Vec<Chunk>)>,
    /// The users of the last reading, which have been checked.
    pub(super) before: Users,
}

/// Cuts a whole text.
pub(super) fn cut(text: &str) -> Vec<TextPiece> {
    let mut pieces = Vec::new();
    scan(text, 0..text.len(), &mut pieces);
    pieces
}

/// Cuts a text that is much like one that has been cut already: only the part that differs is scanned.
pub(super) fn cut_again(text: &str, old_text: &str, old: &[TextPiece]) -> Vec<TextPiece> {
    let (head, tail) = overlap(text, old_text);
    let mut kept = old.partition_point(|piece| piece.at.end <= head);
    // The last line of a kept piece may continue in the new text.
    while kept > 0 && !text[..old[kept - 1].at.end].ends_with('\n') {
        kept -= 1;
    }
    let from = kept.checked_sub(1).map_or(0, |last| old[last].at.end);
    // Pieces that begin in the common tail start a line in both texts: the line end before them is common too.
    let rest = old.partition_point(|piece| piece.at.start <= old_text.len() - tail).max(kept);
    let moved = |at: usize| at + text.len() - old_text.len();
    let to = old.get(rest).map_or(text.len(), |piece| moved(piece.at.start));
    let mut pieces = old[..kept].to_vec();
    scan(text, from..to, &mut pieces);
    let is_run = old.get(rest).is_some_and(|piece| piece.run.is_some());
    if is_run && !is_open(text, pieces.last()) {
        return cut(text);
    }
    let again = |piece: &TextPiece| TextPiece {
        at: moved(piece.at.start)..moved(piece.at.end),
        run: piece.run.clone(),
    };
    pieces.extend(old[rest..].iter().map(again));
    pieces
}

/// Cuts a part of a text and appends its pieces.
fn scan(text: &str, part: Range<usize>, pieces: &mut Vec<TextPiece>) {
    let mut open = is_open(text, pieces.last());
    let (mut at, mut lines) = (part.start, 0);
    let (mut start, mut run) = (at, None::<Vec<Prefix>>);
    let mut close = |start: usize, end: usize, run: Option<Vec<Prefix>>| {
        if start < end {
            pieces.push(TextPiece { at: start..end, run: run.map(Chunk::new) });
        }
    };
    for line in text[part].split_inclusive('\n') {
        let mut prefixes = Vec::new();
        let plain = open && read_plain(line, &mut prefixes);
        if plain != run.is_some() || lines == LINES {
            close(start, at, run.take());
            (start, lines) = (at, 0);
        }
        if plain {
            run.get_or_insert_default().extend(prefixes);
            lines += 1;
        } else {
            open = opens(line);
        }
        at += line.len();
    }
    close(start, at, run);
}

/// Whether a run may follow this piece.
fn is_open(text: &str, before: Option<&TextPiece>) -> bool {
    before.is_some_and(|piece| {
        piece.run.is_some() || text[piece.at.clone()].split_inclusive('\n').next_back().is_some_and(opens)
    })
}

fn opens(line: &str) -> bool {
    line.ends_with('\n')
        && line.trim_start().starts_with("sources")
        && line.trim_end().ends_with('[')
        && !line.contains('#')
}

/// Reads a line of nothing but quoted prefixes, a comma behind each, and perhaps a comment. Returns whether the line is such a line.
fn read_plain(line: &str, prefixes: &mut Vec<Prefix>) -> bool {
    let Some(line) = line.strip_suffix('\n') else { return false };
    let mut rest = line.strip_suffix('\r').unwrap_or(line);
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        if let Some(comment) = rest.strip_prefix('#') {
            return !comment.contains(|c: char| c != '\t' && c.is_control());
        }
        if rest.is_empty() {
            return true;
        }
        let Some((text, behind)) = rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) else {
            return false;
        };
        let Some(behind) = behind.trim_start_matches([' ', '\t']).strip_prefix(',') else { return false };
        // A text with an escape or a control character does not parse as a prefix.
        let Ok(prefix) = text.parse() else { return false };
        prefixes.push(prefix);
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The pieces of a text, each with its number of prefixes.
    fn shown(text: &str) -> Vec<(&str, usize)> {
        let pieces = cut(text);
        pieces
            .iter()
            .map(|piece| (&text[piece.at.clone()], piece.run.as_ref().map_or(0, |c| c.prefixes().len())))
            .collect()
    }

    #[test]
    fn lines_of_prefixes_behind_an_open_list_are_runs_and_nothing_else_is() {
        let run = "\"10.0.0.0/8\", \"10.1.0.0/16\" ,# ours\r\n\n  # none\n\t\"::/0\",\n";
        let text = format!("sources = [\n{run}\"10.2.0.0/16\"]\n");
        assert_eq!(shown(&text), [("sources = [\n", 0), (run, 3), ("\"10.2.0.0/16\"]\n", 0)]);
        for text in [
            "sources = [ # of them\n\"10.0.0.0/8\",\n]\n",
            "\"10.0.0.0/8\",\n",
            "sources = [\n\"10.0.0.1/8\",\n]\n",
            "sources = [\n\"10.0.0.0/8\"\n]\n",
            "sources = [\n'10.0.0.0/8',\n]\n",
            "sources = [\n\"10.0.0.0/8\", #\u{1}\n]\n",
            "sources = [\n\"10.0.0.0/8\",",
        ] {
            assert_eq!(shown(text), [(text, 0)]);
        }
    }

    #[test]
    fn a_change_in_a_long_run_leaves_the_pieces_around_it_as_they_are() {
        let line = |i: u32| format!("\"{}\",\n", std::net::Ipv4Addr::from_bits(i));
        let lines: String = (0..10_000).map(line).collect();
        let old_text = format!("sources = [\n{lines}]\n");
        let text = old_text.replace("\"0.0.19.136\",\n", "\"9.9.9.9\",\n\"9.9.9.8\",\n");
        let old = cut(&old_text);
        let new = cut_again(&text, &old_text, &old);
        let kept = |piece: &&TextPiece| {
            old.iter().any(|other| match (&piece.run, &other.run) {
                (Some(new), Some(old)) => std::ptr::eq(new.prefixes(), old.prefixes()),
                _ => false,
            })
        };
        assert_eq!(old.len(), 2 + 10_000_usize.div_ceil(LINES));
        assert!(
            new.iter().filter(kept).count() >= old.len() - 4,
            "{} of {}",
            new.iter().filter(kept).count(),
            old.len()
        );
        assert_eq!(together(&new), together(&cut(&text)));
    }

    /// The pieces with neighbouring runs joined: which bytes are in no run, and which prefixes stand between them.
    fn together(pieces: &[TextPiece]) -> Vec<(Range<usize>, Vec<Prefix>)> {
        let mut joined: Vec<(Range<usize>, bool, Vec<Prefix>)> = Vec::new();
        for piece in pieces {
            let prefixes = piece.run.as_ref().map_or(&[][..], Chunk::prefixes);
            match joined.last_mut() {
                Some((at, run, all)) if *run == piece.run.is_some() => {
                    assert_eq!(at.end, piece.at.start);
                    at.end = piece.at.end;
                    all.extend(prefixes);
                }
                _ => joined.push((piece.at.clone(), piece.run.is_some(), prefixes.to_vec())),
            }
        }
        joined.iter_mut().for_each(|(_, _, prefixes)| prefixes.sort());
        joined.into_iter().map(|(at, _, prefixes)| (at, prefixes)).collect()
    }

    fn text() -> impl Strategy<Value = Vec<&'static str>> {
        let line = prop_oneof![
            6 => Just("\"10.0.0.0/8\",\n"),
            2 => Just("\"::/0\", # x\n"),
            1 => Just("sources = [\n"),
            1 => Just("]\n"),
            1 => Just("\"10.0.0.0/8\"\n"),
            1 => Just("[[user]]\n"),
            1 => Just("\"10.0.0.0/8\","),
            1 => Just("\n"),
        ];
        prop::collection::vec(line, 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_text_that_is_cut_again_covers_every_byte_and_has_the_same_prefixes(
            old in text(), put in text(), at in any::<prop::sample::Index>(), gone in 0_usize..5, bytes in 0_usize..20,
        ) {
            let mut new = old.clone();
            let at = at.index(old.len() + 1);
            new.splice(at..(at + gone).min(old.len()), put.into_iter().take(3));
            let (old, mut new) = (old.concat(), new.concat());
            new.truncate(new.len().saturating_sub(bytes));
            let again = cut_again(&new, &old, &cut(&old));
            let covered: usize = again.iter().map(|piece| piece.at.len()).sum();
            prop_assert_eq!(covered, new.len());
            prop_assert!(again.iter().zip(again.iter().skip(1)).all(|(a, b)| a.at.end == b.at.start));
            prop_assert!(again.iter().rev().skip(1).all(|piece| new[piece.at.clone()].ends_with('\n')), "whole lines");
            let found = |pieces: &[TextPiece]| {
                let mut all: Vec<Prefix> = pieces
                    .iter()
                    .flat_map(|piece| match &piece.run {
                        Some(chunk) => chunk.prefixes().to_vec(),
                        None => new[piece.at.clone()].split('"').filter_map(|word| word.parse().ok()).collect(),
                    })
                    .collect();
                all.sort();
                all
            };
            prop_assert_eq!(found(&again), found(&cut(&new)));
            // Every run is at a place where a run may be.
            for (index, piece) in again.iter().enumerate().filter(|(_, piece)| piece.run.is_some()) {
                prop_assert!(is_open(&new, index.checked_sub(1).map(|before| &again[before])));
                prop_assert!(new[piece.at.clone()].split_inclusive('\n').all(|line| read_plain(line, &mut Vec::new())));
            }
        }
    }
}
