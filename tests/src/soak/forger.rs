//! Forged SYNs, from a process of its own that ends when the wire does.

use std::process::{Child, Command, Stdio};

use crate::{
    daemon::binary,
    netns::{EDGE_V4, Wire, run},
    traffic::socket_address,
};

/// SYNs per second, each from another source.
const FORGED: u64 = 300;

/// The process, while there is one.
#[derive(Debug, Default)]
pub(super) struct Forger {
    child: Option<Child>,
}

impl Forger {
    fn running(&mut self) -> Option<&mut Child> {
        let child = self.child.as_mut()?;
        child.try_wait().is_ok_and(|ended| ended.is_none()).then_some(child)
    }

    /// Starts one if none runs.
    pub(super) fn start(&mut self, wire: &Wire) {
        if self.running().is_some() {
            return;
        }
        let mut command = wire.in_net(binary("traffic"));
        command.args(["forge", "--to", &socket_address(EDGE_V4), "--for", "7200", "--kind", "syn"]);
        command.args(["--pps", &FORGED.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("a forger"));
    }

    /// Sends it a signal, if it runs.
    pub(super) fn signal(&mut self, name: &str) {
        if let Some(child) = self.running() {
            let pid = child.id().to_string();
            run(Command::new("kill").arg(format!("-{name}")).arg(pid));
        }
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _gone = child.kill();
            let _gone = child.wait();
        }
    }
}
