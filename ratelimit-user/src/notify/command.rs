//! One run of a notifier's command. It gets the message on its standard input and none of the daemon's secrets in its environment, and its time is limited.

use std::{os::unix::process::ExitStatusExt as _, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{io::AsyncWriteExt as _, process::Command};

/// Environment variables that a command is given.
const KEPT: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// Runs a command and waits for its end. After the limit the command and all processes in its group are killed.
pub(super) async fn run(words: &[String], body: &[u8], limit: Duration) -> Result<(), String> {
    let (program, arguments) = words.split_first().ok_or("there is no command")?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    command.envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // The command gets a process group of its own, so that the processes it starts can be killed with it.
    command.process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("cannot start {program}: {error}"))?;
    let mut group = RunningGroup(child.id().and_then(|id| Pid::from_raw(id as i32)));
    let work = async {
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read its input may still do its work.
            let _unread = stdin.write_all(body).await;
        }
        child.wait().await
    };
    let ended = tokio::time::timeout(limit, work).await;
    if matches!(ended, Ok(Ok(_))) {
        // The command ended by itself: processes that it left running are not killed.
        group.0 = None;
    }
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(match (status.code(), status.signal()) {
            (Some(code), _) => format!("{program} ended with {code}"),
            (None, signal) => format!("{program} was ended by signal {}", signal.unwrap_or(0)),
        }),
        Ok(Err(error)) => Err(format!("{program}: {error}")),
        Err(_late) => {
            drop(group);
            let _over = child.wait().await;
            Err(format!("{program} did not end within {} s and was killed", limit.as_secs_f64()))
        }
    }
}

/// The process group of a command that has not ended by itself. Dropping it kills the group, also if the policy has another notifier by now and nobody waits.
struct RunningGroup(Option<Pid>);

impl Drop for RunningGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
}
