//! The daemon: wires the pieces together and keeps them running. No folder imports one above it:
//!
//! ```text
//! run                                               from start to stop
//! front   start                                     the front process, and who keeps it running; from nothing to a policy in force
//! service   leases                                  who answers orders and follows signals and the clock; the conversation with the store
//! views                                             what is told of the host: status, explanations, frames, witnesses of attacks
//! orders                                            what operators order: policies, settings, users, entries of lists
//! host                                              one owner for each thing
//! lists                                             block and allow lists, blocks of all hosts, who must not be cut off
//! cluster                                           leases of packets and members, as this host knows them
//! in_force   attacks   traffic   conditions         the policy, kept and enforced; attacks; packets looked at; interfaces, listeners and headroom
//! line                                              messages between the daemon and the front process
//! state   supervisor_socket                         what outlives the daemon, on disk; what systemd hears
//! options                                           the command line
//! ```

mod attacks;
mod cluster;
pub(crate) mod conditions;
pub mod front;
mod host;
mod in_force;
mod leases;
mod line;
mod lists;
mod options;
mod orders;
mod run;
mod service;
mod start;
pub(crate) mod state;
mod supervisor_socket;
mod traffic;
mod views;

use crate::log;
use state::{attack_records, journal, record, saved_clients};

pub use options::{Keep, Options};
pub use run::run;

/// Reads bytes as each file of the state directory would be read. Returns whether notes of the journal that can be read are written back unchanged.
pub fn read_any_state(bytes: &[u8]) -> bool {
    let _maybe_damaged = record::opened(bytes);
    let _maybe_damaged = attack_records::opened::<crate::attacks::AttackReport>(bytes);
    let _maybe_damaged = saved_clients::SavedClients::opened(bytes);
    journal::reads_what_it_writes(bytes)
}
