//! The vocabulary rule: words that `docs/glossary.md` has retired are not used again.
//!
//! The table of retired words is in the glossary itself, so readers and this check use one list. A row is enforced once its word is gone.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The page that has the table.
const GLOSSARY: &str = "docs/glossary.md";

/// The first line of the table.
const HEADER: &str = "| word | as | use | except | enforced |";

/// Files that are not checked: dated texts, which keep their words, and the page with the table.
const NOT_CHECKED: [&str; 3] = ["CHANGELOG.md", "docs/decisions/", GLOSSARY];

/// One row of the table.
struct Retired {
    word: String,
    matched: Matched,
    instead: String,
    except: Vec<String>,
    enforced: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Matched {
    /// The word alone, as a part of an identifier, or in the plural, in code and documentation.
    Word,
    /// Exactly this identifier, in code.
    Name,
}

/// Refuses retired words in code and documentation.
pub(crate) fn check(root: &Path) -> Result<()> {
    let glossary = read(root, GLOSSARY)?;
    let retired: Vec<Retired> = table(&glossary)?.into_iter().filter(|row| row.enforced).collect();
    let mut found = Vec::new();
    for path in workspace::files(root)? {
        let file = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
        let is_code = has_ending(&path, &["rs", "lua"]);
        if NOT_CHECKED.iter().any(|path| file.starts_with(path))
            || !(is_code || has_ending(&path, &["md", "toml"]))
        {
            continue;
        }
        let text = read(root, &file)?;
        for (line, number) in text.lines().zip(1..) {
            found.extend(
                retired
                    .iter()
                    .filter(|row| (is_code || row.matched == Matched::Word) && row.is_in(line))
                    .map(|row| format!("{file}:{number}: \"{}\": say {}", row.word, row.instead)),
            );
        }
    }
    if !found.is_empty() {
        bail!("words that {GLOSSARY} has retired:\n  {}", found.join("\n  "));
    }
    Ok(())
}

impl Retired {
    fn is_in(&self, line: &str) -> bool {
        // Most lines do not have the word, so this is checked before anything is allocated.
        if !contains_ignoring_case(line, &self.word) {
            return false;
        }
        let mut line = line.to_owned();
        for text in &self.except {
            line = line.replace(text.as_str(), " ");
        }
        line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|identifier| match self.matched {
            Matched::Name => identifier == self.word,
            Matched::Word => segments(identifier).any(|part| is_form_of(part, &self.word)),
        })
    }
}

fn contains_ignoring_case(line: &str, word: &str) -> bool {
    line.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether a part of a text is the word, in the singular or the plural.
fn is_form_of(part: &str, word: &str) -> bool {
    let singular = match part.as_bytes() {
        [_, .., b's' | b'S'] if part.len() == word.len() + 1 => &part[..part.len() - 1],
        _ => part,
    };
    singular.eq_ignore_ascii_case(word)
}

/// Returns the words inside an identifier: `lamp_state`, `LampState` and `LAMP_STATE` have two each.
fn segments(identifier: &str) -> impl Iterator<Item = &str> {
    identifier.split('_').flat_map(|part| {
        let mut rest = part;
        std::iter::from_fn(move || {
            let end = rest
                .char_indices()
                .zip(rest.chars().skip(1))
                .find(|((_, c), next)| !c.is_ascii_uppercase() && next.is_ascii_uppercase())
                .map_or(rest.len(), |((at, c), _)| at + c.len_utf8());
            let (word, after) = rest.split_at(end);
            rest = after;
            (!word.is_empty()).then_some(word)
        })
    })
}

/// Returns the rows of the table of retired words.
fn table(glossary: &str) -> Result<Vec<Retired>> {
    let mut lines = glossary.lines().skip_while(|line| *line != HEADER).skip(2);
    let mut rows = Vec::new();
    for line in lines.by_ref().take_while(|line| line.starts_with('|')) {
        rows.push(row(line).with_context(|| format!("{GLOSSARY}: not a row of the table of words: {line}"))?);
    }
    if rows.is_empty() {
        bail!("{GLOSSARY} has no table of retired words; it begins with {HEADER}");
    }
    Ok(rows)
}

fn row(line: &str) -> Result<Retired> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [word, matched, instead, except, enforced] = cells[..] else { bail!("a row has five cells") };
    Ok(Retired {
        word: quoted(word).into_iter().next().context("the word stands in backticks")?,
        matched: match matched {
            "word" => Matched::Word,
            "name" => Matched::Name,
            other => bail!("matched as {other:?}; word or name"),
        },
        instead: instead.to_owned(),
        except: quoted(except),
        enforced: match enforced {
            "yes" => true,
            "no" => false,
            other => bail!("enforced {other:?}; yes or no"),
        },
    })
}

/// Returns the texts of a cell in backticks, or in double backticks, so that a text can have backticks itself.
fn quoted(cell: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = cell;
    while let Some(start) = rest.find('`') {
        let (fence, pad) = if rest[start..].starts_with("``") { ("``", " ") } else { ("`", "") };
        let inside = &rest[start + fence.len()..];
        let Some(end) = inside.find(&format!("{pad}{fence}")) else { break };
        found.push(inside[pad.len()..end].to_owned());
        rest = &inside[end + pad.len() + fence.len()..];
    }
    found
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    path.extension().is_some_and(|extension| endings.iter().any(|ending| extension == *ending))
}

fn read(root: &Path, file: &str) -> Result<String> {
    fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Retired {
        row(line).unwrap()
    }

    #[test]
    fn a_word_is_found_alone_in_identifiers_and_in_the_plural() {
        let lamp = of("| `lamp` | word | light | | yes |");
        for line in ["the lamp", "Lamp::new()", "lamp_state", "LampState", "MAX_LAMPS", "two lamps."] {
            assert!(lamp.is_in(line), "{line}");
        }
        for line in ["lampion", "LAMPION", "headlamp", "amp"] {
            assert!(!lamp.is_in(line), "{line}");
        }
    }

    #[test]
    fn a_name_is_found_only_exactly() {
        let stool = of("| `Stool` | name | seat | | yes |");
        assert!(stool.is_in("struct Stool {") && stool.is_in("&Stool"));
        assert!(!stool.is_in("the stool that") && !stool.is_in("Stools") && !stool.is_in("// Stooled"));
    }

    #[test]
    fn texts_that_scripts_rely_on_may_have_the_word() {
        let latch = of(
            r#"| `latch` | word | prefilter | `latch = true`, `` `latch` ``, `ratelimit_latch_cells` | yes |"#,
        );
        assert!(!latch.is_in("latch = true  # default") && !latch.is_in("the key `latch`"));
        assert!(!latch.is_in("ratelimit_latch_cells 3"));
        assert!(latch.is_in("latch = true opens the latch"));
        assert!(!latch.is_in("the latchkey"));
    }

    #[test]
    fn a_row_that_cannot_be_read_is_an_error() {
        assert!(row("| `latch` | word | prefilter | yes |").is_err());
        assert!(row("| latch | word | prefilter | | yes |").is_err());
        assert!(row("| `latch` | word | prefilter | | soon |").is_err());
        assert!(table("# no table\n").is_err());
    }

    #[test]
    fn what_is_found_is_named_with_its_place_and_the_word_to_use() {
        let dir = std::env::temp_dir().join(format!("ratelimit-words-{}", std::process::id()));
        for member in ["docs", "ratelimit-common", "ratelimit-ebpf", "ratelimit-user", "tests", "xtask"] {
            fs::create_dir_all(dir.join(member)).unwrap();
        }
        let rows = "| `lamp` | word | light | | yes |\n| `bulb` | word | level | | no |\n";
        fs::write(dir.join(GLOSSARY), format!("{HEADER}\n|---|---|---|---|---|\n{rows}")).unwrap();
        fs::write(dir.join("tests/a.rs"), "fn a() {}\n// The lamp. A bulb.\n").unwrap();
        let told = check(&dir).unwrap_err().to_string();
        fs::remove_dir_all(&dir).unwrap();
        assert!(told.ends_with("\n  tests/a.rs:2: \"lamp\": say light"), "{told}");
    }

    #[test]
    fn no_retired_word_is_in_this_repository() {
        check(&workspace::root()).unwrap();
    }
}
