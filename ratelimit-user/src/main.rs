//! The `ratelimit` binary: verbs, nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    ratelimit_user::cli::main()
}
