//! `ratelimit run`: the daemon.

use std::path::PathBuf;

use clap::Args;

use super::{DEFAULT_KEEP, DEFAULT_PIN, DEFAULT_STATE, store::StoreOptions};
use crate::{
    daemon::{self, Keep, Options},
    dataplane::attach::GenericMode,
    failure::Failure,
};

/// Run the daemon in the foreground; prints "ready" when enforcing.
///
/// Links and maps are pinned: if the daemon stops, for whatever reason, the limits stay in force. The next `run`
/// takes over without a packet passing unlimited; `ratelimit detach` ends protection.
///
/// SIGHUP reads the policy again. A broken policy changes nothing. What `ratelimit apply` put in force outlives a restart as
/// long as the policy file stays as it is.
///
/// Example: ratelimit run --policy /etc/ratelimit.toml --iface eth0
#[derive(Debug, Args)]
pub(super) struct Run {
    /// Policy file
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Interface to guard, instead of those in the policy; may be given more than once
    #[arg(long = "iface", value_name = "NAME")]
    interfaces: Vec<String>,
    /// State directory, with the control socket
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
    /// Directory on a BPF file system where links and maps are pinned
    #[arg(long, value_name = "DIR", default_value = DEFAULT_PIN)]
    pin: PathBuf,
    /// Directory that outlives a reboot, where blocks and allows are kept; /var/lib/ratelimit, or the state directory if --state names one
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Where the kernel's process file system is; the host's headroom is read there
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc: PathBuf,
    #[command(flatten)]
    store: StoreOptions,
    /// Fail rather than run in generic mode, at a tenth of the speed
    #[arg(long)]
    require_native: bool,
}

impl Run {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let keep = match self.keep {
            Some(path) => Keep::Named(path),
            None if self.state.as_os_str() == DEFAULT_STATE => Keep::Usual(DEFAULT_KEEP.into()),
            None => Keep::WithState,
        };
        daemon::run(&Options {
            keep,
            policy: self.policy,
            interfaces: self.interfaces,
            state: self.state,
            pin: self.pin,
            proc: self.proc,
            redis: self.store.address()?,
            generic: if self.require_native { GenericMode::Refuse } else { GenericMode::Accept },
        })
    }
}
