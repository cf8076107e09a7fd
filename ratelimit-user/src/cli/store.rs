//! The store that the command line names. A password is never among its words: everybody on the host can read them.

use std::{env, path::PathBuf};

use clap::Args;

use crate::{
    failure::Failure,
    policy::address::{Password, StoreAddress},
};

/// Where a password was once taken from. Whoever may read the environment of the process has it then, and so has every program that is started from the same shell or unit.
const VARIABLE: &str = "RATELIMIT_REDIS_PASSWORD";

/// The store, instead of the policy's.
#[derive(Clone, Debug, Args)]
pub(super) struct StoreOptions {
    /// The store that hosts share, instead of `[cluster] redis` in the policy: redis://, rediss://, redis+sentinel:// or
    /// redis+cluster://, without a password
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// File with the password for --redis in its first line
    #[arg(long, value_name = "FILE", requires = "redis")]
    redis_password_file: Option<PathBuf>,
}

impl StoreOptions {
    /// The address, if there is one. A password in the environment is refused, whatever else is named: whoever put it there believes that it is used.
    pub(super) fn address(self) -> Result<Option<StoreAddress>, Failure> {
        self.with(env::var_os(VARIABLE).is_some_and(|password| !password.is_empty()))
    }

    fn with(self, is_in_environment: bool) -> Result<Option<StoreAddress>, Failure> {
        if is_in_environment {
            return Err(Failure::usage(format!(
                "{VARIABLE} is set, and no password is taken from the environment; write it into a file that only the daemon may read, name that with \
                 --redis-password-file or with password_file in [cluster], and unset the variable"
            )));
        }
        let Some(url) = self.redis else { return Ok(None) };
        let wrong = |why: String| Failure::usage(format!("--redis: {why}"));
        let apart = self.redis_password_file.map(Password::InFile);
        // A password in the address is an error of its own here, whatever else is wrong with the address.
        if url.parse::<StoreAddress>().is_ok_and(|address| address.login.is_some()) {
            return Err(wrong(
                "the address has a password in it, which everybody on this host could read in the list of processes; leave it out and name a \
                 file with --redis-password-file"
                    .to_owned(),
            ));
        }
        StoreAddress::parse_with(&url, apart).map(Some).map_err(|error| wrong(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str, file: Option<&str>) -> Result<StoreAddress, String> {
        let options = StoreOptions { redis: Some(url.into()), redis_password_file: file.map(PathBuf::from) };
        options.with(false).map(Option::unwrap).map_err(|failure| failure.message)
    }

    #[test]
    fn the_password_is_in_a_file_and_never_in_a_word() {
        let password = |url, file| address(url, file).unwrap().login.map(|login| login.password);
        assert_eq!(password("redis://h", None), None);
        let in_file = || Some(Password::InFile("/p".into()));
        assert_eq!(password("redis://h", Some("/p")), in_file());
        assert_eq!(password("redis://acme@h", Some("/p")), in_file());
        for url in [
            "redis://:hunter2@h",
            "redis://u:hunter2@h:1/2",
            "redis+unix://:hunter2@/s",
            "redis://u:hunter2@h:port",
        ] {
            for file in [None, Some("/p")] {
                let said = address(url, file).unwrap_err();
                assert!(said.starts_with("--redis: ") && !said.contains("hunter2"), "{said}");
            }
        }
    }

    #[test]
    fn a_password_in_the_environment_is_refused_whatever_else_is_named() {
        for redis in [None, Some("redis://h".to_owned())] {
            for redis_password_file in [None, redis.is_some().then(|| PathBuf::from("/p"))] {
                let options = StoreOptions { redis: redis.clone(), redis_password_file };
                let said = options.with(true).unwrap_err().message;
                assert!(
                    said.contains("RATELIMIT_REDIS_PASSWORD is set")
                        && said.contains("--redis-password-file"),
                    "{said}"
                );
            }
        }
    }
}
