//! Explains the treatment of an address: every limit that applies to it, how full each bucket is, and the verdict on its next packet.
//!
//! ```text
//!   remembered --> record --> packet path on scratch tables --> refusals, verdict --.
//!   (kernel maps)    |                                                              +--> explanation -> text, JSON
//!                    '------> what is left under each limit -----------------------'
//! ```
//!
//! Pure but for [`Remembered`], which is the kernel's maps or a test's memory: nothing here changes a word. The packet path itself (`ratelimit-ebpf`, as a library)
//! decides about packets; it reads the recorded values and writes to memory that is thrown away.
//! `tests/tests/packets/explanation` compares explanations with what happens then.

mod listing;
mod neighbourhood;
mod record;
mod refusals;
pub mod remaining;
mod remembered;
mod report;
mod scratch;
mod service;
mod source;
mod source_state;
mod user;
mod window;

use std::net::IpAddr;

use ratelimit_common::{
    abi::{self, Meter, Mode},
    limit::gcra::time_q8,
};

use crate::{
    compile::{Names, lists::Lists},
    moment,
    policy::{Policy, Reserve},
};
use record::ReadRecord;
use refusals::Refusals;
pub use remembered::{Remembered, Row, RowWords, words};
pub use report::{
    BlockMatch, CellState, ClientPrecedence, ExplainedRefusal, Explanation, LastDrop, LimitState,
    NegativeEntry, PrefixState, RememberedClient, ServiceState, SourceState, SynCookies, UserState,
};
use source::Source;

/// The hash of the source that an address belongs to, by the policy in the kernel.
pub fn source_hash(address: IpAddr, policy: &abi::Policy) -> u64 {
    Source::of(address.to_canonical(), policy).hash
}

/// What is in force, and the moment that the explanation is about.
#[derive(Clone, Copy, Debug)]
pub struct ExplainContext<'s> {
    /// The policy as the operator wrote it.
    pub policy: &'s Policy,
    /// The policy as the kernel has it.
    pub kernel: &'s abi::Policy,
    /// The indices of services and users in the kernel's policy.
    pub names: &'s Names,
    /// The block list and the allow list.
    pub lists: &'s Lists,
    /// What this host may spend of users' limits without a lease, if these limits hold on all hosts together.
    pub reserve: Option<Reserve>,
    /// Now in nanoseconds, on the clock that decides under this policy.
    pub now_ns: u64,
    /// Now in seconds since 1970, UTC.
    pub unix_seconds: u64,
}

impl ExplainContext<'_> {
    fn now_q8(&self) -> u64 {
        time_q8(self.now_ns)
    }
}

/// Explains an address, with all services or only the named one.
pub fn explain<R: Remembered>(
    remembered: &R,
    setting: &ExplainContext<'_>,
    address: IpAddr,
    service: Option<&str>,
) -> Result<Explanation, R::Error> {
    let address = address.to_canonical();
    let source = Source::of(address, setting.kernel);
    let record = ReadRecord::new(remembered, setting, address)?;
    let services =
        || setting.policy.services().iter().filter(|one| service.is_none_or(|name| name == one.name()));
    let refusals = Refusals::of(&record, setting, source.seen, services());
    let wait =
        |number: u32, meter: Meter, words| refusals::alone_ms(&record, source.seen, number, meter, words);
    let own = source.account(&record, setting, &refusals, &wait);
    let party = own.party();
    let explanation = Explanation {
        address: address.to_string(),
        at: moment::utc(setting.unix_seconds),
        source: setting.policy.source().around(address).to_string(),
        mode: if setting.policy.mode() == Mode::Monitor { "monitor" } else { "enforce" }.to_owned(),
        allowed_by: listing::allowed_by(setting.lists, address),
        blocked_by: listing::blocked_by(setting, address),
        user: user::state(&record, setting, address, &wait),
        own,
        prefixes: neighbourhood::prefixes(&record, setting, &source, party),
        host: service::host(&record, setting, party, &wait),
        services: services()
            .filter_map(|one| service::state(&record, setting, &source, party, &refusals, &wait, one))
            .collect(),
        verdict: refusals.verdict.to_owned(),
        reason: refusals.reason,
        refusals: refusals.all,
        known: Vec::new(),
        last_drops: Vec::new(),
    };
    record.finish(explanation)
}
