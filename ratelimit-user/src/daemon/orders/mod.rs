//! Orders of operators: other policies, settings, limits, users, and entries of the lists.

pub(super) mod caller;
pub(super) mod change;
pub(super) mod clients;
pub(super) mod limits;
pub(super) mod list_orders;
pub(super) mod offenders;
pub(super) mod settings;
pub(super) mod users;
