//! Shows, exports, imports and forgets known clients. The memory is read and changed without the lock of the host.

use std::{io, net::IpAddr, path::Path};

use ratelimit_common::limit::clients::SETS;

use super::Daemon;
use crate::{
    control::{
        protocol::{DISK_PATIENCE, KnownClient, KnownPage, KnownSummary, Reply},
        server::Caller,
    },
    daemon::{
        host::Host,
        orders::{
            caller::By,
            clients::{ClientNames, rounded},
        },
        views::{known_totals, shared::beside},
    },
    dataplane::probe,
    failure::{ExitCode, Failure},
    log, moment,
};

/// Sets of the memory that one answer to an export is about: its text has at most three megabytes.
const PAGE: u32 = SETS / 16;

impl Daemon {
    /// Returns what is remembered of a client, or of all together.
    pub(super) async fn show_clients(&self, address: Option<IpAddr>) -> Result<Reply, Failure> {
        let Some(address) = address else { return self.summary_of_clients().await };
        let (names, memory, source) = {
            let host = self.host();
            let source = host.policy().source().around(address.to_canonical()).shown();
            (names(&host), host.clients(), source)
        };
        let services = names.remembered(&memory, address)?;
        Ok(Reply::KnownClient(KnownClient { source, services }))
    }

    async fn summary_of_clients(&self) -> Result<Reply, Failure> {
        let (_, known) = self.usage().await?;
        let host = self.host();
        let keeper = &host.client_keeper;
        Ok(Reply::KnownSummary(KnownSummary {
            clients: known.clients,
            in_filter: known.in_filter,
            packets_per_second: rounded(known.packets_per_sec),
            totals: known_totals::of(&host, &known),
            saved: keeper.saved_unix_seconds().map(moment::utc),
            kept_in: keeper.path().display().to_string(),
        }))
    }

    /// Returns some known clients as lines of text.
    pub(super) async fn export_clients(&self, from: u32) -> Result<Reply, Failure> {
        let (names, memory) = {
            let host = self.host();
            (names(&host), host.clients())
        };
        let to = from.saturating_add(PAGE).min(SETS);
        let page = beside(move || {
            let known = memory.known_in(from..to, probe::now_ns())?;
            Ok(KnownPage { next: (to < SETS).then_some(to), ..names.lines(&known) })
        });
        Ok(Reply::KnownPage(page.await?))
    }

    /// Makes clients known, all of a file or none.
    pub(super) async fn import_clients(
        &self,
        file: &Path,
        text: String,
        caller: Caller,
    ) -> Result<Reply, Failure> {
        let (names, memory) = {
            let host = self.host();
            (names(&host), host.clients())
        };
        let file = file.display().to_string();
        let imported = beside(move || {
            let clients = names.parse(&text, &file)?;
            let (count, now_ns) = (clients.len() as u64, probe::now_ns());
            let placed = memory.import(clients, now_ns)?;
            memory.refresh(now_ns)?;
            Ok((placed, count - placed, file))
        });
        let (placed, left, file) = imported.await?;
        let without = match left {
            0 => String::new(),
            left => format!("; {left} have no place, because clients with larger averages have theirs"),
        };
        Ok(self.changed(format!("{placed} clients of {file} are known{without}"), caller).await)
    }

    /// Forgets a client at all services.
    pub(super) async fn forget_client(&self, address: IpAddr, caller: Caller) -> Result<Reply, Failure> {
        let (names, memory) = {
            let host = self.host();
            (names(&host), host.clients())
        };
        let mut forgotten = Vec::new();
        for (service, hash) in names.hashes(address) {
            if memory.forget(hash)? {
                forgotten.push(service.unwrap_or("packets of no service"));
            }
        }
        if forgotten.is_empty() {
            let message = format!("{address} is not remembered; nothing was changed");
            return Err(Failure::new(ExitCode::Found, message));
        }
        Ok(self.changed(format!("{address} is forgotten at {}", forgotten.join(", ")), caller).await)
    }

    /// Logs a change of the memory and saves it: a restart must not undo what was answered.
    async fn changed(&self, done: String, caller: Caller) -> Reply {
        log::info(format!("{done}, by {}", By { caller, operator: None }));
        self.host().attacks.note(&done);
        match self.save_clients().await {
            Ok(()) => Reply::Done(done),
            Err(error) => Reply::Done(format!("{done}; NOT ON DISK, a reboot may undo it: {error}")),
        }
    }

    /// Saves known clients, or gives up on a disk that does not answer.
    pub(in crate::daemon) async fn save_clients(&self) -> io::Result<()> {
        let save = self.host().saving_clients();
        self.disk.within(DISK_PATIENCE, save).await
    }
}

fn names(host: &Host) -> ClientNames {
    ClientNames::of(&host.enforced.desired)
}
