//! The daemon: wires the pieces together and keeps them running.

mod archive;
mod arrivals;
mod caller;
mod change;
mod cluster;
mod drops;
mod explain;
mod facts;
mod guard;
pub(crate) mod headroom;
mod host;
mod journal;
mod keeping;
mod kept;
mod layouts;
mod limits;
mod lists;
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
mod waiting;
mod warnings;

use crate::log;

pub use host::{Keep, Options};
pub use service::run;
