//! The daemon: wires the pieces together and keeps them running.

mod answer;
mod archive;
mod arrivals;
mod attack;
mod caller;
mod change;
mod cluster;
mod drops;
mod enforcer;
mod entries;
mod explain;
pub(crate) mod headroom;
mod host;
mod in_force;
mod interfaces;
mod journal;
mod keeping;
mod kept;
mod layouts;
mod limits;
mod list_orders;
mod lists;
mod offenders;
mod options;
mod progress;
mod record;
mod replacement;
mod requests;
mod seal;
mod service;
mod settings;
mod shared;
mod start;
mod state_dir;
mod status;
mod trace;
mod unsaved;
mod users;
mod version;
mod vital;
mod waiting;
mod warnings;

use crate::log;

pub use options::{Keep, Options};
pub use service::run;
