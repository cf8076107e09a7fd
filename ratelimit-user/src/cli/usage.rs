//! What is said to who typed something else than a verb wants: help in 80 columns, mistakes without secrets, and what was probably meant.

use std::{env, process};

use clap::error::ErrorKind;

use super::output::{asks_for_json, complain, print, print_error};
use crate::policy::{Prefix, address};

/// The verbs of other programs for `del`.
pub(super) const REMOVAL: [&str; 3] = ["remove", "rm", "delete"];
/// The columns of a terminal with the usual width.
pub(super) const WIDTH: usize = 80;

/// Shows help, or what is wrong with a command line.
pub(super) fn tell(error: &clap::Error) -> process::ExitCode {
    let said = address::without_passwords(&error.to_string());
    let text = narrow(&said, WIDTH);
    let code = u8::try_from(error.exit_code()).unwrap_or(2);
    if error.use_stderr() {
        complain(text.trim_end());
        if asks_for_json(env::args()) {
            // What follows the first paragraph is how the verb is used.
            let sentence = said.split("\n\n").next().unwrap_or_default();
            print_error(sentence.trim().trim_start_matches("error: "), code);
        }
    } else {
        // A reader that has gone away is no failure.
        let _unread = print(&text);
    }
    if error.kind() == ErrorKind::InvalidSubcommand {
        let words: Vec<String> = env::args().skip(1).collect();
        if let Some(meant) = meant(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
            complain(&format!("\n{meant}"));
        }
    }
    process::ExitCode::from(code)
}

/// What somebody meant who typed a verb that there is not.
fn meant(words: &[&str]) -> Option<String> {
    let prefix_at = |words: &[&str]| words.iter().position(|word| word.parse::<Prefix>().is_ok());
    Some(match words {
        [list @ ("block" | "allow"), rest @ ..] if prefix_at(rest).is_some() => {
            let from = prefix_at(rest).unwrap_or_default();
            format!("did you mean: ratelimit {list} add {}", rest[from..].join(" "))
        }
        ["ban" | "deny" | "drop" | "blacklist", rest @ ..] => {
            format!("did you mean: ratelimit block add {}", or(rest, "CIDR"))
        }
        ["unban" | "unblock", rest @ ..] => format!("did you mean: ratelimit block del {}", or(rest, "CIDR")),
        ["whitelist", rest @ ..] => format!("did you mean: ratelimit allow add {}", or(rest, "CIDR")),
        ["reload", ..] => "the daemon reads its policy file again at SIGHUP: kill -HUP PID, with the pid that \
                           ratelimit status shows;\nanother file is put in force with: ratelimit apply FILE"
            .to_owned(),
        ["stop" | "quit" | "shutdown" | "kill", ..] => {
            "the daemon ends at SIGTERM: kill PID, with the pid that ratelimit status shows; limits stay in force.\n\
             Protection ends with: ratelimit detach"
                .to_owned()
        }
        ["start" | "restart" | "daemon", ..] => {
            "the daemon is started with: ratelimit run --policy FILE; one that runs is stopped with SIGTERM first".to_owned()
        }
        _ => return None,
    })
}

fn or(words: &[&str], otherwise: &str) -> String {
    if words.is_empty() { otherwise.to_owned() } else { words.join(" ") }
}

/// Breaks a text into lines of at most so many characters. What goes on in the next line begins below what it goes on from: where a column
/// of explanations has its text, or where the line itself begins.
pub(super) fn narrow(text: &str, width: usize) -> String {
    let mut narrow = String::new();
    for line in text.lines() {
        let indent = hanging(line).min(width / 2);
        let (mut column, mut is_first) = (0, true);
        // Spaces at the beginning and between columns are part of the words behind them.
        for word in line.split_inclusive(' ') {
            let length = word.trim_end().chars().count();
            if column + length > width && column > indent && !is_first {
                narrow.truncate(narrow.trim_end_matches(' ').len());
                narrow.push('\n');
                narrow.push_str(&" ".repeat(indent));
                column = indent;
            }
            narrow.push_str(word);
            column += word.chars().count();
            is_first &= word.trim().is_empty();
        }
        narrow.truncate(narrow.trim_end_matches(' ').len());
        narrow.push('\n');
    }
    narrow
}

/// The column of the last text in a line that stands apart from what is before it.
fn hanging(line: &str) -> usize {
    let begins = line.len() - line.trim_start().len();
    let columns = line[begins..].match_indices("  ").map(|(at, _)| begins + at);
    columns.last().map_or(begins, |gap| gap + line[gap..].len() - line[gap..].trim_start().len())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::{Cli, understand};

    fn assert_narrow(name: &str, help: &str) {
        for line in narrow(help, WIDTH).lines() {
            assert!(line.chars().count() <= WIDTH, "{name}: {} columns: {line}", line.chars().count());
        }
    }

    #[test]
    fn the_help_of_every_verb_fits_into_80_columns_and_loses_nothing() {
        let mut verbs = Vec::new();
        let mut root = Cli::command();
        root.build();
        collect(root, &mut verbs);
        assert!(verbs.len() > 30, "{} verbs", verbs.len());
        for mut verb in verbs {
            let name = verb.get_name().to_owned();
            for help in [verb.render_help(), verb.render_long_help()] {
                let help = help.to_string();
                assert_narrow(&name, &help);
                let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                assert_eq!(words(&narrow(&help, WIDTH)), words(&help), "{name}");
            }
        }
    }

    fn collect(verb: clap::Command, verbs: &mut Vec<clap::Command>) {
        for one in verb.get_subcommands() {
            collect(one.clone(), verbs);
        }
        verbs.push(verb);
    }

    #[test]
    fn what_goes_on_begins_below_what_it_goes_on_from() {
        let text = "  --one  aaa bbb ccc ddd\n    ddd eee fff ggg hhh\nshort\n";
        let expected = "  --one  aaa bbb ccc\n         ddd\n    ddd eee fff ggg\n    hhh\nshort\n";
        assert_eq!(narrow(text, 20), expected);
    }

    #[test]
    fn remove_rm_and_delete_take_an_entry_off_a_list() {
        for list in ["block", "allow"] {
            for verb in REMOVAL {
                assert_eq!(understand(&["ratelimit", list, verb, "192.0.2.1"]), Ok(()), "{list} {verb}");
            }
        }
    }

    #[test]
    fn verbs_of_other_programs_are_understood_well_enough_to_name_ours() {
        for (words, expected) in [
            (&["block", "1.2.3.4"][..], "ratelimit block add 1.2.3.4"),
            (&["block", "2001:db8::/48", "--for", "10m"], "ratelimit block add 2001:db8::/48 --for 10m"),
            (&["allow", "10.0.0.0/8"], "ratelimit allow add 10.0.0.0/8"),
            (&["block", "put", "1.2.3.4", "--for", "10m"], "ratelimit block add 1.2.3.4 --for 10m"),
            (&["ban", "1.2.3.4"], "ratelimit block add 1.2.3.4"),
            (&["ban"], "ratelimit block add CIDR"),
            (&["unban", "1.2.3.4"], "ratelimit block del 1.2.3.4"),
            (&["reload"], "SIGHUP"),
            (&["stop"], "ratelimit detach"),
            (&["start"], "ratelimit run --policy FILE"),
        ] {
            let meant = meant(words).unwrap_or_default();
            assert!(meant.contains(expected), "{words:?}: {meant}");
        }
        assert_eq!(meant(&["frobnicate"]), None);
        assert_eq!(meant(&["block", "frobnicate"]), None);
    }
}
