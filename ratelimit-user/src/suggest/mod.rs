//! Suggests limits for observed traffic: habits of sources, limits that only outliers exceed, and the sources that those limits would have hit.
//!
//! ```text
//!   packets -> habits (busiest second of each source, by service) -> distributions -> proposals -> draft (a policy)
//!           '-> replay of the draft -> hits -> comments of the draft
//! ```
//!
//! Pure: packets come from a capture or a spool, with their own times. The number of sources with a row has a bound; lighter ones are summed up.

mod distribution;
mod draft;
mod habits;
mod proposal;
mod spool;
mod subject;

pub use distribution::Distribution;
pub use draft::{PolicyDraft, ProposedLimit, Suggestion};
pub use habits::Habits;
pub use proposal::Proposal;
pub use spool::{Spool, SpoolFull};
pub use subject::ProposalSubject;
