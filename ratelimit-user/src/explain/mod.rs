//! Why an address is treated as it is: every limit that applies to it, how full each bucket is, and what becomes of its next packet.
//!
//! ```text
//!   address x policy x lists x ledger -> explanation -> text, JSON
//! ```
//!
//! Pure but for the [`Ledger`], which is the kernel's maps or a test's memory: nothing here moves a word. What is said of the next packet is
//! held against the packet path itself in `tests/tests/packets/explanation.rs`.

mod account;
mod ledger;
mod listing;
mod neighbourhood;
mod newcomers;
mod refusals;
mod report;
mod service;
mod source;
mod user;
mod window;

use std::net::IpAddr;

use ratelimit_common::{
    abi::{self, Mode},
    limit::gcra::time_q8,
};

use crate::{
    compile::{Names, lists::Lists},
    moment,
    policy::{Policy, Prefix, Reserve},
};
pub use ledger::Ledger;
use newcomers::Newcomers;
pub use report::{
    Account, BlockMatch, CellState, Explanation, LastDrop, LimitState, NegativeEntry, PrefixState, Refusal,
    ServiceState, SynCookies, UserState,
};
use source::Source;

/// What is in force, and when.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'s> {
    /// As the operator wants it.
    pub policy: &'s Policy,
    /// As the kernel has it.
    pub kernel: &'s abi::Policy,
    /// Which index each service and user has there.
    pub names: &'s Names,
    /// The lists.
    pub lists: &'s Lists,
    /// What this host has of users' limits without a lease, if these hold on all hosts together.
    pub reserve: Option<Reserve>,
    /// Now, on the clock that decides under this policy.
    pub now_ns: u64,
    /// Now, for people: seconds since 1970, UTC.
    pub unix_seconds: u64,
}

impl Setting<'_> {
    fn now_q8(&self) -> u64 {
        time_q8(self.now_ns)
    }
}

/// Explains an address, with all services or one of them.
pub fn explain<L: Ledger>(
    ledger: &L,
    setting: &Setting<'_>,
    address: IpAddr,
    service: Option<&str>,
) -> Result<Explanation, L::Error> {
    let address = address.to_canonical();
    let source = Source::of(address, setting.kernel);
    let entry = ledger.listed(address)?;
    let newcomers = Newcomers {
        words: ledger.newcomers()?,
        budget: &setting.kernel.prefilter.new_sources,
        now_q8: setting.now_q8(),
    };
    let own = source.account(ledger, setting, &newcomers)?;
    let (prefixes, wanted) = neighbourhood::prefixes(ledger, setting, &source, own.party(), &newcomers)?;
    // The entry for a service is made last, of what these leave.
    let before = wanted + u64::from(own.wants_entry(&setting.kernel.source.set));
    let mut services = Vec::new();
    for one in setting.policy.services().iter().filter(|one| service.is_none_or(|name| name == one.name())) {
        services.extend(service::state(ledger, setting, &source, own.party(), (&newcomers, before), one)?);
    }
    let party = own.party();
    let prefix_len = match address {
        IpAddr::V4(_) => setting.policy.source().ipv4_prefix(),
        IpAddr::V6(_) => setting.policy.source().ipv6_prefix(),
    };
    let mut explanation = Explanation {
        address: address.to_string(),
        at: moment::utc(setting.unix_seconds),
        source: Prefix::masked(address, prefix_len).to_string(),
        mode: if setting.policy.mode() == Mode::Monitor { "monitor" } else { "enforce" }.to_owned(),
        verdict: String::new(),
        reason: String::new(),
        refusals: Vec::new(),
        allowed_by: listing::allowed_by(setting.lists, address),
        blocked_by: listing::blocked_by(setting, address),
        user: user::state(ledger, setting, address, entry.map_or(abi::user::NO_USER, |entry| entry.user))?,
        own,
        prefixes,
        host: service::host(ledger, setting, party)?,
        services,
        last_drops: Vec::new(),
    };
    refusals::conclude(&mut explanation, entry.as_ref(), setting);
    Ok(explanation)
}
