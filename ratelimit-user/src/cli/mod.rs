//! The command line: one file per verb, each a question to the daemon and a way to show the answer.

mod allow;
mod apply;
mod attacks;
mod block;
mod check;
mod cluster;
mod completions;
mod confirm;
mod detach;
mod diff;
mod doctor;
mod explain;
mod front;
mod interface_line;
mod known;
mod limit;
mod log_options;
mod man;
mod operator;
mod order;
mod output;
mod remains;
mod replay;
mod rollback;
mod run;
mod serve;
mod span;
mod stats;
mod status;
mod store;
mod suggest;
mod test;
mod top;
mod usage;
mod user;
mod watch;

use std::{env, path::PathBuf, process};

use clap::{Args, Parser, Subcommand};

use crate::{build::BUILD, failure::Failure};
use output::Output;

/// Where the control socket is unless --state says otherwise.
const DEFAULT_STATE: &str = "/run/ratelimit";
/// Where blocks and allows are kept unless --keep or --state says otherwise.
const DEFAULT_KEEP: &str = "/var/lib/ratelimit";
/// Where links and maps are pinned unless --pin says otherwise.
const DEFAULT_PIN: &str = "/sys/fs/bpf/ratelimit";

/// Rate limiting at the edge: drops floods at XDP, before the kernel spends a socket buffer on them.
#[derive(Debug, Parser)]
#[command(
    name = "ratelimit",
    version = BUILD,
    after_help = "Exit codes: 0 done; 1 ran, and found something; 2 wrong usage or a bad file; \
                  3 no daemon reachable; 4 not permitted; 5 the kernel or driver cannot do it."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// Each verb describes itself: a comment here would take the place of its long help.
#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::Run),
    Serve(serve::Serve),
    Check(check::CheckArgs),
    Diff(diff::Diff),
    Apply(apply::ApplyArgs),
    Confirm(confirm::Confirm),
    Rollback(rollback::Rollback),
    Status(status::StatusArgs),
    Stats(stats::Stats),
    Top(top::Top),
    Watch(watch::WatchArgs),
    Explain(explain::Explain),
    Replay(replay::Replaying),
    Suggest(suggest::Suggest),
    Attacks(attacks::AttacksArgs),
    Block(block::BlockArgs),
    Cluster(cluster::ClusterArgs),
    Allow(allow::Allow),
    Limit(limit::LimitArgs),
    User(user::UserArgs),
    Known(known::KnownArgs),
    Test(test::Test),
    Doctor(doctor::Doctor),
    Detach(detach::Detach),
    Completions(completions::Completions),
    Man(man::Man),
    #[command(hide = true)]
    Front(front::FrontArgs),
}

/// How to reach the daemon; every verb that talks to it takes this.
#[derive(Clone, Debug, Args)]
struct DaemonArgs {
    /// State directory of the daemon
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
}

/// How to show the answer.
#[derive(Clone, Copy, Debug, Args)]
struct Format {
    /// Output format
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Parses the command line, carries out the verb, and turns its outcome into an exit code.
pub fn main() -> process::ExitCode {
    let verb = match Cli::try_parse() {
        Ok(cli) => cli.verb,
        Err(error) => return usage::tell(&error),
    };
    let outcome = match verb {
        Verb::Run(verb) => verb.execute(),
        Verb::Serve(verb) => verb.execute(),
        Verb::Check(verb) => verb.execute(),
        Verb::Diff(verb) => verb.execute(),
        Verb::Apply(verb) => verb.execute(),
        Verb::Confirm(verb) => verb.execute(),
        Verb::Rollback(verb) => verb.execute(),
        Verb::Status(verb) => verb.execute(),
        Verb::Stats(verb) => verb.execute(),
        Verb::Top(verb) => verb.execute(),
        Verb::Watch(verb) => verb.execute(),
        Verb::Explain(verb) => verb.execute(),
        Verb::Replay(verb) => verb.execute(),
        Verb::Suggest(verb) => verb.execute(),
        Verb::Attacks(verb) => verb.execute(),
        Verb::Block(verb) => verb.execute(),
        Verb::Cluster(verb) => verb.execute(),
        Verb::Allow(verb) => verb.execute(),
        Verb::Limit(verb) => verb.execute(),
        Verb::User(verb) => verb.execute(),
        Verb::Known(verb) => verb.execute(),
        Verb::Test(verb) => verb.execute(),
        Verb::Doctor(verb) => verb.execute(),
        Verb::Detach(verb) => verb.execute(),
        Verb::Completions(verb) => verb.execute(),
        Verb::Man(verb) => verb.execute(),
        Verb::Front(verb) => verb.execute(),
    };
    match outcome {
        Ok(()) => process::ExitCode::SUCCESS,
        Err(Failure { code, message }) => {
            // What was found may have been shown already.
            if !message.is_empty() {
                output::complain(&message);
                if output::asks_for_json(env::args()) {
                    output::print_error(&message, code as u8);
                }
            }
            process::ExitCode::from(code as u8)
        }
    }
}

/// Whether these words are a command, as the documentation shows it; otherwise what is wrong with them.
#[cfg(test)]
pub(crate) fn understand(words: &[&str]) -> Result<(), (clap::error::ErrorKind, String)> {
    Cli::try_parse_from(words).map(drop).map_err(|error| (error.kind(), error.to_string()))
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use super::*;

    /// Whether a verb, or one of those below it, lacks an example of its own.
    fn without_example(verb: &Command, path: &str) -> Vec<String> {
        let path = format!("{path} {}", verb.get_name());
        let below: Vec<&Command> = verb.get_subcommands().filter(|below| !below.is_hide_set()).collect();
        if !below.is_empty() {
            return below.into_iter().flat_map(|below| without_example(below, &path)).collect();
        }
        let help = verb.get_long_about().or(verb.get_about()).map(ToString::to_string).unwrap_or_default();
        let example = format!("Example: {}", path.trim_start());
        if help.contains(&example) { Vec::new() } else { vec![path] }
    }

    #[test]
    fn the_help_of_every_verb_has_an_example_of_it() {
        assert_eq!(without_example(&Cli::command(), ""), Vec::<String>::new());
    }
}
