//! `ratelimit detach`: the end of protection.

use std::path::PathBuf;

use clap::Args;

use super::{DEFAULT_PIN, Daemon, Format, client::order, output::print_done};
use crate::{
    dataplane::{attach, pin::PinDir, probe},
    failure::{ExitCode, Failure},
    serve::protocol::Request,
};

/// Take the program off interfaces: ends protection.
///
/// A running daemon does it; without one, the pins are removed directly, and with the last interface everything goes.
///
/// Example: ratelimit detach --iface eth0
#[derive(Debug, Args)]
pub(super) struct Detach {
    /// One interface; all when absent
    #[arg(long = "iface", value_name = "NAME")]
    interface: Option<String>,
    /// Pin directory, when no daemon is running
    #[arg(long, value_name = "DIR", default_value = DEFAULT_PIN)]
    pin: PathBuf,
    #[command(flatten)]
    daemon: Daemon,
    #[command(flatten)]
    format: Format,
}

impl Detach {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let request = Request::Detach { interface: self.interface.clone() };
        match order(&self.daemon.state, &request, self.format.output) {
            Err(Failure { code: ExitCode::NoDaemon, .. }) => self.without_daemon(),
            outcome => outcome,
        }
    }

    fn without_daemon(self) -> Result<(), Failure> {
        probe::require_root()?;
        let pins = PinDir::new(&self.pin);
        let linked = pins.linked_interfaces()?;
        let names = match self.interface {
            None => linked.clone(),
            Some(name) if linked.contains(&name) => vec![name],
            Some(name) => {
                let message = format!("interface {name:?} is not guarded under {}", self.pin.display());
                return Err(Failure::usage(message));
            }
        };
        for name in &names {
            attach::detach(&pins, name)?;
        }
        if names.len() == linked.len() {
            pins.remove_all()?;
        }
        if names.is_empty() {
            let message = format!("nothing is attached under {}; nothing to detach", self.pin.display());
            return Err(Failure::new(ExitCode::Found, message));
        }
        print_done(self.format.output, &format!("detached from {}", names.join(", ")))
    }
}
