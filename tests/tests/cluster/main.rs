//! Hosts that count packets together: the store, its scripts, leases, blocks for all hosts, and real daemons on it.

mod cost;
mod fleet;
mod gossip;
mod record;
mod script;
mod simulator;
mod store;
