//! `ratelimit detach`: the end of protection.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{DEFAULT_PIN, DaemonArgs, Format, order::order, output::print_done};
use crate::{
    control::{client::daemon_is_absent, protocol::Order},
    dataplane::{detach, pin::PinDir, probe},
    failure::{ExitCode, Failure},
};

/// How long the kernel may take to let go of links: nobody else waits for this process.
const PATIENCE: Duration = Duration::from_secs(20);

/// Take the program off interfaces: ends protection.
///
/// A running daemon takes the program off. Without a daemon the pins are removed directly; with the last interface all pins go.
///
/// Example: ratelimit detach --iface eth0
#[derive(Debug, Args)]
pub(super) struct Detach {
    /// Interface to detach from; without it, all
    #[arg(long = "iface", value_name = "NAME")]
    interface: Option<String>,
    /// Pin directory, used when no daemon runs
    #[arg(long, value_name = "DIR", default_value = DEFAULT_PIN)]
    pin: PathBuf,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    format: Format,
}

impl Detach {
    pub(super) fn execute(self) -> Result<(), Failure> {
        if daemon_is_absent(&self.daemon.state) {
            return self.without_daemon();
        }
        let request = Order::Detach { interface: self.interface.clone() };
        order(&self.daemon.state, request, self.format.output)
    }

    fn without_daemon(self) -> Result<(), Failure> {
        probe::require_rights("taking XDP programs off interfaces")?;
        let pins = PinDir::new(&self.pin);
        let nothing = || {
            let message = format!("nothing is attached under {}; nothing to detach", self.pin.display());
            Failure::new(ExitCode::Found, message)
        };
        if !self.pin.exists() {
            return Err(nothing());
        }
        // Nothing is ever removed from another kind of directory.
        probe::require_bpffs(&self.pin)?;
        let _claim = pins.claim()?;
        let linked = pins.linked_interfaces()?;
        let names = match &self.interface {
            None => linked.clone(),
            Some(name) if linked.contains(name) => vec![name.clone()],
            Some(name) => {
                let message = format!("interface {name:?} is not guarded under {}", self.pin.display());
                return Err(Failure::usage(message));
            }
        };
        let unlinked = detach::detach(&pins, &names, PATIENCE);
        if unlinked.unpinned.len() == linked.len() {
            pins.remove_all_maps()?;
        }
        if names.is_empty() {
            return Err(nothing());
        }
        let names = unlinked.done(PATIENCE)?;
        print_done(self.format.output, &format!("detached from {}", names.join(", ")))
    }
}
