//! The `ratelimit` binary, which only calls the library's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    ratelimit_user::cli::main()
}
