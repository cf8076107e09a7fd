//! The daemon: wires the pieces together and keeps them running.

mod answer;
mod archive;
mod arrivals;
mod attack;
mod attack_records;
mod attacks;
mod caller;
mod change;
mod cluster;
mod dashboard;
mod drops;
mod enforcer;
mod entries;
mod explain;
mod express_lane;
mod frames;
pub mod front;
pub(crate) mod headroom;
mod host;
mod in_force;
mod interfaces;
mod journal;
mod keeping;
mod kept;
mod layouts;
mod lease_thread;
mod limits;
mod list_orders;
mod listeners;
mod lists;
mod lookout;
mod offenders;
mod options;
mod progress;
mod readers;
mod record;
mod remaining;
mod replacement;
mod requests;
mod run;
mod seal;
mod service;
mod settings;
mod shared;
mod signals;
mod start;
pub(crate) mod state_dir;
mod status;
mod supervisor;
mod supervisor_socket;
mod trace;
mod traffic;
mod unsaved;
mod users;
mod version;
mod views;
mod vital;
mod waiting;
mod warnings;
mod witnesses;

use crate::log;

pub use options::{Keep, Options};
pub use run::run;

/// Reads bytes as each file of the state directory would be read. Whether notes about lists are read as they were written again.
pub fn read_any_state(bytes: &[u8]) -> bool {
    let _maybe_damaged = record::opened(bytes);
    let _maybe_damaged = attack_records::opened(bytes);
    journal::reads_what_it_writes(bytes)
}
