//! The running daemon, and how it answers orders.

pub(super) mod answer;
mod clients;
pub(super) mod dashboard;
mod disk;
pub(super) mod readings;
pub(super) mod signals;
pub(super) mod supervisor;

use std::{
    fs::File,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, mpsc};

use self::{answer::answer, disk::DiskWaits};
use super::{
    host::{Host, HostCell},
    line::{front::Front, requests},
    lists::vital::learn_ssh_ports,
    views::{frames, shared::Shared},
};
use crate::{
    control::{
        protocol::{DISK_PATIENCE, Order, Reply},
        server::{Answer, Caller},
    },
    dataplane::{clients::KnownClients, table::TableUse},
    drops::Filter,
    failure::{ExitCode, Failure},
    stats::{Snapshot, feed::Views},
};

/// How long an order waits at most until the journal is rewritten, and how often it checks.
const REWRITTEN_WITHIN: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The running daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    host: Arc<HostCell>,
    /// Notified after every order, because an order may have moved the end of a wait for confirmation.
    pub(super) asked: Notify,
    /// Reads the table once for everybody who asks at the same time.
    pub(super) usage: Shared<(TableUse, KnownClients)>,
    pub(super) stats: Shared<Snapshot>,
    pub(super) scrape: Shared<String>,
    /// Views of the traffic for metrics, if the policy wants series of sources, and the time of the last scrape.
    pub(super) scraped: Mutex<Option<(Views, Instant)>>,
    /// The counters that `stats` showed last, and when: the next `stats` shows rates since then.
    pub(super) last_counters: Mutex<Option<(Instant, Snapshot)>>,
    disk: DiskWaits,
}

impl Daemon {
    /// Makes a daemon for a host that has been started.
    pub(super) fn new(host: Host) -> Self {
        Self {
            host: HostCell::new(host),
            asked: Notify::new(),
            usage: Shared::default(),
            stats: Shared::default(),
            scrape: Shared::default(),
            scraped: Mutex::default(),
            last_counters: Mutex::default(),
            disk: DiskWaits::default(),
        }
    }

    pub(super) fn host(&self) -> MutexGuard<'_, Host> {
        self.host.host()
    }

    /// Returns the shared cell of the host, for long use.
    pub(super) fn cell(&self) -> &Arc<HostCell> {
        &self.host
    }

    /// Returns the daemon's view of the front process.
    pub(super) fn front(&self) -> Front {
        self.host().requests.front.clone()
    }

    /// Waits until the journal is rewritten, if that is under way after a failure of the disk, so that the answer tells the state after it.
    async fn rewritten(&self) {
        let until = Instant::now() + REWRITTEN_WITHIN;
        while Instant::now() < until {
            {
                let mut host = self.host();
                host.lists.keeper.journal.settle();
                if !host.lists.keeper.journal.is_rewriting() {
                    return;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the journal is on disk. Returns the end of a sentence if it is not.
    async fn on_disk(&self, file: Option<Arc<File>>) -> String {
        let synced = match file {
            Some(file) => self.disk.within(DISK_PATIENCE, move || file.sync_data()).await,
            None => {
                self.rewritten().await;
                Ok(())
            }
        };
        let mut host = self.host();
        if let Err(error) = synced {
            host.lists.keeper.journal.failed(&error);
        }
        host.lists.keeper.journal.problem().map_or_else(String::new, |problem| {
            format!("; NOT ON DISK, a restart or a reboot may undo it: {problem}")
        })
    }
}

impl Answer for Daemon {
    async fn answer(&self, request: Order, caller: Caller) -> Reply {
        if matches!(caller, Caller::Process { pid, .. } if self.front().is(pid)) {
            return Reply::Failed(Failure::new(
                ExitCode::NotPermitted,
                "the front process gives no orders here",
            ));
        }
        // Ports are taken only from processes at the control socket, because clients connected to one of these ports cannot be blocked.
        if let (Caller::Process { .. }, Some(operator)) = (caller, request.operator()) {
            learn_ssh_ports(&operator.ssh_ports);
        }
        let reply = match request {
            Order::Test(question) => requests::ask(&self.front(), question).await,
            Order::Status => self.status().await.map(|status| Reply::Status(Box::new(status))),
            Order::Stats => self.counters().await.map(|counters| Reply::Stats(Box::new(counters))),
            Order::Top => self.view().await.map(|view| Reply::View(Box::new(view))),
            Order::KnownShow { address } => self.show_clients(address).await,
            Order::KnownExport { from } => self.export_clients(from).await,
            Order::KnownImport { file, text, .. } => self.import_clients(&file, text, caller).await,
            Order::KnownForget { address } => self.forget_client(address, caller).await,
            // The answer comes when the change is on disk, because the caller relies on it to last.
            request if request.changes_lists() => {
                let (reply, file) = {
                    let mut host = self.host();
                    (answer(&mut host, request, caller), host.lists.keeper.file())
                };
                match reply {
                    Ok(Reply::Done(message)) => Ok(Reply::Done(message + &self.on_disk(file).await)),
                    reply => reply,
                }
            }
            request => {
                let reply = {
                    let mut host = self.host();
                    let reply = answer(&mut host, request, caller);
                    host.in_force.note_unsaved();
                    reply
                };
                // After a change of the policy the answer waits for the front, so that the next request is decided by the new policy.
                self.front().settled().await;
                reply
            }
        };
        self.asked.notify_one();
        reply.unwrap_or_else(Reply::Failed)
    }

    fn watch(&self, filter: Filter, frames: bool) -> mpsc::Receiver<Reply> {
        frames::watch(&self.host, filter, frames)
    }
}
