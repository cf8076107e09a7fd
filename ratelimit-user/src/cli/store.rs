//! The store that the command line names. A password is never among its words: everybody on the host can read them.

use std::{env, path::PathBuf};

use clap::Args;

use crate::{
    failure::Failure,
    policy::address::{Password, StoreAddress},
};

/// Where a password may be that no other user of the host can read.
const VARIABLE: &str = "RATELIMIT_REDIS_PASSWORD";

/// The store, instead of the policy's.
#[derive(Clone, Debug, Args)]
pub(super) struct StoreOptions {
    /// The store that hosts share, instead of [cluster] redis in the policy: redis://, rediss://, redis+sentinel:// or
    /// redis+cluster://, without a password
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// File with the password for --redis in its first line; without it, the environment variable RATELIMIT_REDIS_PASSWORD is used
    #[arg(long, value_name = "FILE", requires = "redis")]
    redis_password_file: Option<PathBuf>,
}

impl StoreOptions {
    /// The address, if there is one.
    pub(super) fn address(self) -> Result<Option<StoreAddress>, Failure> {
        self.with(env::var(VARIABLE).ok().filter(|password| !password.is_empty()))
    }

    fn with(self, in_environment: Option<String>) -> Result<Option<StoreAddress>, Failure> {
        let Some(url) = self.redis else { return Ok(None) };
        let wrong = |why: String| Failure::usage(format!("--redis: {why}"));
        let apart =
            self.redis_password_file.map(Password::InFile).or_else(|| in_environment.map(Password::Known));
        // A password in the address is an error of its own here, whatever else is wrong with the address.
        if url.parse::<StoreAddress>().is_ok_and(|address| address.login.is_some()) {
            return Err(wrong(format!(
                "the address has a password in it, which everybody on this host could read in the list of processes; leave it out and name a \
                 file with --redis-password-file, or put it into {VARIABLE}"
            )));
        }
        StoreAddress::parse_with(&url, apart).map(Some).map_err(|error| wrong(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str, file: Option<&str>, variable: Option<&str>) -> Result<StoreAddress, String> {
        let options = StoreOptions { redis: Some(url.into()), redis_password_file: file.map(PathBuf::from) };
        let address = options.with(variable.map(str::to_owned));
        address.map(Option::unwrap).map_err(|failure| failure.message)
    }

    #[test]
    fn the_password_is_in_a_file_or_in_the_environment_and_never_in_a_word() {
        let password =
            |url, file, variable| address(url, file, variable).unwrap().login.map(|login| login.password);
        assert_eq!(password("redis://h", None, None), None);
        let in_file = || Some(Password::InFile("/p".into()));
        assert_eq!(password("redis://h", Some("/p"), Some("x")), in_file());
        assert_eq!(password("redis://acme@h", Some("/p"), None), in_file());
        assert_eq!(password("redis://h", None, Some("x")), Some(Password::Known("x".into())));
        for url in [
            "redis://:hunter2@h",
            "redis://u:hunter2@h:1/2",
            "redis+unix://:hunter2@/s",
            "redis://u:hunter2@h:port",
        ] {
            for (file, variable) in [(None, None), (Some("/p"), None), (None, Some("x"))] {
                let said = address(url, file, variable).unwrap_err();
                assert!(said.starts_with("--redis: ") && !said.contains("hunter2"), "{said}");
            }
        }
    }
}
