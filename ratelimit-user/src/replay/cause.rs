//! The cause of a packet's verdict: the reason, and the limit of the policy.

use ratelimit_common::{
    abi::{
        Meter, Reason, Verdict,
        counter::{Fate, REASON_SLOTS, SERVICE_SLOTS},
    },
    limit::rate::Rate,
};

use crate::{
    compile::Places,
    policy::{LimitList, Policy},
};

/// The cause of a packet's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause {
    /// The number of the packet's service, as in the table of ports.
    pub service: u32,
    /// The reason that the packet was counted with.
    pub reason: Reason,
    /// What happened to the packet.
    pub fate: Fate,
    /// Whether a limit of the service for each source refused the packet.
    pub at_service: bool,
}

impl Cause {
    /// The cause by the number of a counter.
    pub fn of(slot: u32, at_service: bool) -> Self {
        let fate = Fate::ALL[(slot % SERVICE_SLOTS / REASON_SLOTS) as usize];
        let reason = Reason::from_code(slot % REASON_SLOTS);
        let refused = reason.verdict() == Verdict::Drop;
        Self { service: slot / SERVICE_SLOTS, reason, fate, at_service: at_service && refused }
    }

    /// Whether a limit, a list or the parser refused the packet, whatever its fate.
    pub fn refuses(&self) -> bool {
        self.reason.verdict() == Verdict::Drop
    }

    /// The verdict on the packet, after its fate.
    pub fn verdict(&self) -> Verdict {
        match self.fate {
            Fate::Decided => self.reason.verdict(),
            Fate::Waived | Fate::Marked => Verdict::Pass,
            Fate::Rejected => Verdict::Reply,
        }
    }

    /// The word for what happened to the packet.
    pub fn fate_name(&self) -> &'static str {
        match self.fate {
            Fate::Decided if self.refuses() => "dropped",
            Fate::Decided => "passed",
            Fate::Waived => "would_drop",
            Fate::Marked => "marked",
            Fate::Rejected => "rejected",
        }
    }

    /// The name of the packet's service.
    pub fn service_name<'p>(&self, services: &'p Places) -> Option<&'p str> {
        services.of_number(self.service)
    }
}

/// The limits of a policy that refused packets for a cause: their name in `limit list`, and their rates.
pub fn limit_of(policy: &Policy, services: &Places, cause: &Cause) -> Option<(String, Vec<Rate>)> {
    let service = || cause.service_name(services).map(str::to_owned);
    let in_meter = |meter: Meter| {
        let list = if cause.at_service { LimitList::PerSource(service()?) } else { LimitList::Source };
        let rates: Vec<Rate> = policy.rates(&list).into_iter().filter(|rate| rate.meter == meter).collect();
        Some((list.limit_name(meter, 1), rates))
    };
    let whole = |list: LimitList| Some((list.to_string(), policy.rates(&list)));
    let key = |name: &str| Some((name.to_owned(), Vec::new()));
    match cause.reason {
        Reason::LimitPackets => in_meter(Meter::Packets),
        Reason::LimitBytes => in_meter(Meter::Bytes),
        Reason::LimitSyns => in_meter(Meter::Syns),
        Reason::LimitFragments => in_meter(Meter::Fragments),
        Reason::ServiceTotal => whole(LimitList::Total(service()?)),
        Reason::HostTotal => whole(LimitList::Host),
        Reason::LimitPrefix => key("source.ladder"),
        Reason::LimitUser => key("user.network"),
        Reason::LinkCap => key("host.link"),
        Reason::NewSourceBudget => key("source.new_sources_per_cpu"),
        Reason::TableFull => key("source.table_entries"),
        _ => None,
    }
}
