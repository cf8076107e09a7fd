//! `ratelimit run`: the daemon.

use std::path::PathBuf;

use clap::Args;

use super::{DEFAULT_KEEP, DEFAULT_PIN, DEFAULT_STATE, log_options::LogOptions, store::StoreOptions};
use crate::{
    daemon::{self, Keep, Options},
    dataplane::{
        attach::GenericMode,
        trace::{Image, TraceLevel},
    },
    failure::Failure,
};

const NO_TRACE: &str = "--trace needs a kernel program that was built for it, which this binary does not have; build one with \
                        `cargo build --release --package ratelimit-user --features trace`, or use `cargo xtask run --trace --iface NAME`";

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
    /// Process file system to read the host's headroom from
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc: PathBuf,
    #[command(flatten)]
    store: StoreOptions,
    /// Fail rather than run in generic mode, at a tenth of the speed
    #[arg(long)]
    require_native: bool,
    /// Print each verdict of the kernel program with source, service and reason: warn prints frames that are dropped, info also those that are
    /// answered, debug all
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "debug")]
    trace: Option<TraceLevel>,
    /// User without rights that answers on all listeners and talks to the store; without it `ratelimit` if there is such a user, else nobody
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Group whose members may ask over the control socket, and change nothing; without it `ratelimit` if there is such a group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Socket where a supervisor starts `ratelimit front --hired` as that user for each connection, for a daemon that may not change users
    #[arg(long, value_name = "SOCKET")]
    front: Option<PathBuf>,
    #[command(flatten)]
    log: LogOptions,
}

impl Run {
    pub(super) fn execute(self) -> Result<(), Failure> {
        self.log.start()?;
        let image = match self.trace {
            None => Image::PLAIN,
            Some(level) => Image::traced(level).ok_or_else(|| Failure::usage(NO_TRACE))?,
        };
        let keep = match self.keep {
            Some(path) => Keep::Named(path),
            None if self.state.as_os_str() == DEFAULT_STATE => Keep::Usual(DEFAULT_KEEP.into()),
            None => Keep::WithState,
        };
        daemon::run(&Options {
            keep,
            image,
            policy: self.policy,
            interfaces: self.interfaces,
            state: self.state,
            pin: self.pin,
            proc: self.proc,
            redis: self.store.address()?,
            user: self.user,
            front: self.front,
            group: self.group,
            log: self.log.words(),
            generic: if self.require_native { GenericMode::Refuse } else { GenericMode::Accept },
        })
    }
}
