//! State that outlives the daemon: policies, notes about lists and reports of attacks, and their forms on disk.

pub(super) mod archive;
pub(super) mod attack_records;
pub(super) mod entries;
pub(super) mod journal;
pub(super) mod keeping;
pub(super) mod kept;
pub(super) mod record;
pub(super) mod replacement;
pub(super) mod saved_clients;
mod seal;
pub(crate) mod state_dir;
pub(super) mod unsaved;
pub(super) mod version;
