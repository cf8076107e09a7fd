//! Hosts, a store and the network between them, as numbers: everything that can go wrong, from a seed.
//!
//! ```text
//! Plan -> World: time, the network, disasters
//!           hosts of packets, hosts of requests      the code that runs in production
//!           Store                                    the record in memory, the script of a real Redis, or both
//!         -> Watch: what one host alone would admit at most
//! ```
//!
//! What decides is the code of production: leases, the arithmetic of the packet path, counter keys, the engine, the record of the store. What is
//! simulated is time, and who hears what when.

mod packets;
mod plan;
mod requests;
mod store;
mod watch;
mod world;

pub use self::{
    plan::{Alone, Faults, Load, PacketPlan, Plan, RequestPlan},
    store::{Script, Store},
    watch::Watch,
    world::{Outcomes, World, steps},
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Where a world begins.
const START: u64 = 1_000 * SECOND;
/// What keys in the store begin with.
const CLUSTER: &str = "c";
