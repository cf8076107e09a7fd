//! Refusals of servers, as errors that an operator can act upon. Pure.

use ::redis::ServerError;

use super::store_error::StoreError;

/// The call that was refused.
#[derive(Clone, Copy, Debug)]
pub(super) enum RefusedCall<'a> {
    Script(&'a str),
    Command(&'a str),
}

/// Makes the error of a server's refusal.
pub(super) fn refusal(at: &str, asked: RefusedCall<'_>, error: &ServerError) -> StoreError {
    refused(at, asked, error.code(), error.details().unwrap_or_default())
}

fn refused(at: &str, asked: RefusedCall<'_>, code: &str, detail: &str) -> StoreError {
    let at = at.to_owned();
    match code {
        "NOAUTH" => StoreError::NoPassword { at },
        "NOPERM" => StoreError::NoPermission { at, what: forbidden(asked, detail) },
        "READONLY" => StoreError::ReadOnly { at },
        "LOADING" => StoreError::Loading { at },
        "BUSY" => StoreError::Busy { at },
        "OOM" => StoreError::OutOfMemory { at },
        "CLUSTERDOWN" => StoreError::ClusterDown { at, why: detail.to_owned() },
        "MISCONF" => StoreError::CannotSave { at },
        "NOREPLICAS" => StoreError::TooFewReplicas { at },
        "MASTERDOWN" => StoreError::MasterDown { at },
        "DENIED" => StoreError::Protected { at },
        "MOVED" | "ASK" => StoreError::IsCluster { at },
        "CROSSSLOT" => StoreError::CrossSlot { script: asked.name().to_owned() },
        "ERR" if detail.starts_with("max number of clients") => StoreError::TooManyClients { at },
        "ERR" if detail.contains("cluster support disabled") => StoreError::NotCluster { at },
        _ => match inside_script(detail) {
            Some((code, detail)) => refused(&at, asked, code, detail),
            None if is_forbidden_in_script(detail) => {
                StoreError::NoPermission { at, what: format!("what the script {} calls", asked.name()) }
            }
            None => other(at, asked, code, detail),
        },
    }
}

fn other(at: String, asked: RefusedCall<'_>, code: &str, detail: &str) -> StoreError {
    let why =
        if code == "ERR" { detail.to_owned() } else { format!("{code} {detail}").trim_end().to_owned() };
    match asked {
        RefusedCall::Script(script) => StoreError::Script { at, script: script.to_owned(), why },
        RefusedCall::Command(what) => StoreError::Refused { at, what: what.to_owned(), why },
    }
}

impl<'a> RefusedCall<'a> {
    fn name(self) -> &'a str {
        match self {
            Self::Script(name) | Self::Command(name) => name,
        }
    }
}

/// Returns which right is missing. Servers put the command between single quotes.
fn forbidden(asked: RefusedCall<'_>, detail: &str) -> String {
    match (detail.split('\'').nth(1), asked) {
        (Some(command), _) => format!("the command {command}"),
        (None, RefusedCall::Script(script)) if detail.contains("key") => {
            format!("the keys of the script {script}")
        }
        (None, RefusedCall::Script(script)) => format!("what the script {script} calls"),
        (None, RefusedCall::Command(command)) => format!("the command {command}"),
    }
}

/// Takes an error of a call inside a script out of what versions before 7.0 answer: `Error running script (call to f_…): @user_script:1: -OOM command …`.
fn inside_script(detail: &str) -> Option<(&str, &str)> {
    let inner = detail.strip_prefix("Error running script")?.split_once(": -")?.1;
    let (code, detail) = inner.split_once(' ')?;
    (code != "ERR" && code.chars().all(|c| c.is_ascii_uppercase())).then_some((code, detail))
}

/// Whether 7.0 says, with code ERR, that a script calls what its user may not.
fn is_forbidden_in_script(detail: &str) -> bool {
    detail.starts_with("The user executing the script can't")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_become_errors_by_code_whatever_the_version() {
        let at = || "h:1".to_owned();
        let script = RefusedCall::Script("lease");
        let no_permission = |what: &str| StoreError::NoPermission { at: at(), what: what.into() };
        for (code, detail, error) in [
            ("NOAUTH", "Authentication required.", StoreError::NoPassword { at: at() }),
            (
                "NOPERM",
                "this user has no permissions to run the 'evalsha' command or its subcommand",
                no_permission("the command evalsha"),
            ),
            (
                "NOPERM",
                "this user has no permissions to access one of the keys used as arguments",
                no_permission("the keys of the script lease"),
            ),
            (
                "ERR",
                "The user executing the script can't run this command or subcommand script: 4b5, on @user_script:1.",
                no_permission("what the script lease calls"),
            ),
            ("READONLY", "You can't write against a read only replica.", StoreError::ReadOnly { at: at() }),
            (
                "ERR",
                "Error running script (call to f_4b5): @user_script:1: -READONLY You can't write against a read only replica. ",
                StoreError::ReadOnly { at: at() },
            ),
            (
                "ERR",
                "Error running script (call to f_4b5): @user_script:1: -OOM command not allowed when used memory > 'maxmemory'. ",
                StoreError::OutOfMemory { at: at() },
            ),
            (
                "ERR",
                "Error running script (call to f_4b5): @user_script:1: user_script:1: attempt to index a nil value ",
                StoreError::Script {
                    at: at(),
                    script: "lease".into(),
                    why: "Error running script (call to f_4b5): @user_script:1: user_script:1: attempt to index a nil value "
                        .into(),
                },
            ),
            (
                "WRONGTYPE",
                "Operation against a key holding the wrong kind of value",
                StoreError::Script {
                    at: at(),
                    script: "lease".into(),
                    why: "WRONGTYPE Operation against a key holding the wrong kind of value".into(),
                },
            ),
            ("LOADING", "Redis is loading the dataset in memory", StoreError::Loading { at: at() }),
            ("MISCONF", "Redis is configured to save RDB snapshots", StoreError::CannotSave { at: at() }),
            ("NOREPLICAS", "Not enough good replicas to write.", StoreError::TooFewReplicas { at: at() }),
            ("MASTERDOWN", "Link with MASTER is down", StoreError::MasterDown { at: at() }),
            ("BUSY", "Redis is busy running a script.", StoreError::Busy { at: at() }),
            ("MOVED", "1 h:2", StoreError::IsCluster { at: at() }),
            ("ERR", "max number of clients reached", StoreError::TooManyClients { at: at() }),
        ] {
            assert_eq!(refused("h:1", script, code, detail), error, "{code} {detail}");
        }
    }
}
