//! The kernel side as user space sees it: loading, attaching, pinning, and reading and writing maps.
//!
//! Only this module talks to BPF. The contents of the maps are computed elsewhere, without a kernel.

pub mod address;
pub mod attach;
mod batch;
mod btf;
pub mod clients;
pub mod detach;
pub mod drops;
mod error;
pub mod features;
pub mod former;
pub mod framing;
mod generic_netlink;
pub mod inner_maps;
pub mod interface;
mod ip_programs;
mod kept;
pub mod kernel;
pub mod listener;
pub mod netfilter;
pub mod netlink;
pub mod netstat;
pub mod pin;
pub mod pinned_link;
pub mod presence;
pub mod probe;
pub mod realtime;
pub mod remains;
mod remembered;
pub mod remount;
pub mod renamed;
pub mod samples;
pub mod sysctl;
pub mod table;
pub mod tap;
pub mod trace;
pub mod tracking;
mod translation;
mod trie;

pub use error::DataplaneError;

use aya::include_bytes_aligned;

/// The kernel program, as compiled by this package's build script.
pub static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/plain/ratelimit-ebpf"));
