//! Changing one value in the text of a policy file. Every other byte stays as its author left it: comments, order, white
//! space, line ends.
//!
//! The value is found by its place in the parsed file and replaced there; nothing is written from a model.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

/// Why a text cannot be changed like that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text is no TOML.
    #[error("it is not TOML")]
    NotToml,
    /// There is no such list.
    #[error("it has no limits in [source]")]
    NoLimits,
}

/// The text with the limit at `index` of `[source] limits` replaced, or with one more at the end when there is none so far.
pub fn set_source_limit(text: &str, index: usize, rate: &str) -> Result<String, EditError> {
    // Places are counted without the mark, which stays in front.
    let (mark, text) = match text.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest),
        None => ("", text),
    };
    let root = DeTable::parse(text).map_err(|_| EditError::NotToml)?;
    let limits = list(root.get_ref(), &["source", "limits"]).ok_or(EditError::NoLimits)?;
    let (place, value) = match limits.get(index) {
        Some(limit) => (limit.span(), format!("\"{rate}\"")),
        None => {
            let last = limits.iter().last().ok_or(EditError::NoLimits)?.span().end;
            (last..last, format!(", \"{rate}\""))
        }
    };
    Ok(format!("{mark}{}", splice(text, &place, &value)))
}

/// The list at a path of keys.
fn list<'v, 'i>(table: &'v DeTable<'i>, path: &[&str]) -> Option<&'v DeArray<'i>> {
    let (key, rest) = path.split_first()?;
    let found = table.iter().find(|(name, _)| name.get_ref().as_ref() == *key);
    match (found.map(|(_, value)| Spanned::get_ref(value))?, rest) {
        (DeValue::Array(items), []) => Some(items),
        (DeValue::Table(inner), rest) => list(inner, rest),
        _ => None,
    }
}

fn splice(text: &str, place: &Range<usize>, value: &str) -> String {
    let (before, after) = (text.get(..place.start), text.get(place.end..));
    format!("{}{value}{}", before.unwrap_or_default(), after.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config;

    const COMMENTED: &str = "# ours\r\n[source]   # all of them\r\nlimits = [ # four at most\r\n  \"5000 packets/s\",  # ticket 4711\r\n\
                             \t'100 syns/s' , # and this\r\n]\r\n\r\n# the end";

    #[test]
    fn a_limit_is_replaced_and_every_other_byte_stays() {
        let edited = set_source_limit(COMMENTED, 1, "7 syns/s burst 9").unwrap();
        assert_eq!(edited, COMMENTED.replace("'100 syns/s'", "\"7 syns/s burst 9\""));
        let edited = set_source_limit(COMMENTED, 0, "1/s").unwrap();
        assert_eq!(edited, COMMENTED.replace("\"5000 packets/s\"", "\"1/s\""));
    }

    #[test]
    fn a_limit_that_is_not_there_comes_behind_the_last_one() {
        let edited = set_source_limit(COMMENTED, 2, "1 MB/s").unwrap();
        assert_eq!(edited, COMMENTED.replace("'100 syns/s'", "'100 syns/s', \"1 MB/s\""));
        let short = "source = { limits = [\"1/s\"] }";
        assert_eq!(
            set_source_limit(short, 1, "1 MB/s").unwrap(),
            "source = { limits = [\"1/s\", \"1 MB/s\"] }"
        );
    }

    #[test]
    fn dotted_keys_and_a_byte_order_mark_are_no_obstacle() {
        let text = "\u{feff}source.limits = [\"1/s\"] # ä\n";
        assert_eq!(set_source_limit(text, 0, "2/s").unwrap(), text.replace("1/s", "2/s"));
    }

    proptest! {
        #[test]
        fn no_text_panics_and_an_edited_policy_has_the_new_limit_and_the_old_others(
            junk in any::<String>(),
            space in "[ \t]{0,3}",
            comment in "[^\\pC]{0,20}",
            index in 0_usize..3,
            amount in 1_u32..1000,
        ) {
            let _refused = set_source_limit(&junk, index, "1/s");
            let text = format!(
                "#{comment}\n[source]{space}#{comment}\nlimits{space}={space}[{space}\"5000/s\",#{comment}\n'10 syns/s'{space},#{comment}\n]\n"
            );
            // Each place takes what makes sense there.
            let rate = [format!("{amount} packets/s"), format!("{amount} syns/s"), format!("{amount} fragments/s")];
            let edited = set_source_limit(&text, index, &rate[index]).unwrap();
            let (before, after) = (config::parse(&text, "p").unwrap().policy, config::parse(&edited, "p").unwrap().policy);
            let (before, after) = (before.source().limits(), after.source().limits());
            prop_assert_eq!(after.len(), before.len().max(index + 1));
            prop_assert_eq!(after[index].rate().amount, u64::from(amount));
            for other in (0..2).filter(|other| *other != index) {
                prop_assert_eq!(&after[other], &before[other]);
            }
            let comment = format!("#{comment}\n");
            prop_assert_eq!(edited.matches(&comment).count(), text.matches(&comment).count());
        }
    }

    #[test]
    fn what_is_no_policy_is_refused() {
        assert_eq!(set_source_limit("[source", 0, "1/s"), Err(EditError::NotToml));
        for text in ["", "[source]\n", "source = 1", "[source]\nlimits = 1", "[source]\nlimits = []"] {
            assert_eq!(set_source_limit(text, 0, "1/s"), Err(EditError::NoLimits), "{text}");
        }
    }
}
