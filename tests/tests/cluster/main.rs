//! Hosts that count packets together: the store, its scripts, leases, blocks for all hosts, and real daemons on it.

mod fleet;
mod gossip;
mod script;
mod simulator;
mod store;
