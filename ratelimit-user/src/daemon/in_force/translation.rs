//! Follows which TCP ports this host translates: SYNs to them are not answered with cookies.
//!
//! A cookie is of the listener that the program finds, at the destination that the packet came in with. Where netfilter sends the packet elsewhere afterwards, that
//! listener never gets the acknowledgement, and the one that gets it knows nothing of the cookie.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use crate::{
    dataplane::{address, netfilter, tracking::Tracking},
    log,
    policy::{Policy, Service},
};

/// How often the host is looked at, at most. Called once a second, so a little less than that.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A look may take this share of the time: where there are very many rules or connections, there are fewer looks.
const SHARE: u32 = 50;
/// How long a port counts as translated after a connection was. Without connections for a while, what translates them is still there.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// What the host translates, as far as it was seen.
#[derive(Debug, Default)]
pub(in crate::daemon) struct TranslationWatch {
    /// What the rules were read for: their number, and the addresses of the host.
    read_for: Option<(Option<u32>, Vec<IpAddr>)>,
    by_rules: Vec<RangeInclusive<u16>>,
    /// Ports of which a tracked connection was translated, and when one was seen last.
    by_connections: BTreeMap<u16, Instant>,
    next_look: Option<Instant>,
    problem: Option<String>,
    /// The warnings that were logged last.
    said: Vec<String>,
}

impl TranslationWatch {
    /// Looks at the host for the first time. The start of the daemon logs the warnings, so they count as logged.
    pub(in crate::daemon) fn begin(policy: &Policy) -> Self {
        let mut watch = Self::default();
        watch.look(policy);
        watch.said = watch.warnings(policy);
        watch
    }

    /// Looks at the rules and connections of the host if a policy asks for SYN cookies, unless the last look was a moment ago.
    pub(in crate::daemon) fn look(&mut self, policy: &Policy) {
        let now = Instant::now();
        if cookie_services(policy).next().is_none() || self.next_look.is_some_and(|next| now < next) {
            return;
        }
        self.problem = self.read(now).err();
        self.next_look = Some(now + LOOK_EVERY.max(now.elapsed() * SHARE));
    }

    fn read(&mut self, now: Instant) -> Result<(), String> {
        let own: Vec<IpAddr> = address::list()
            .map_err(|error| error.to_string())?
            .into_iter()
            .map(|(address, _)| address)
            .collect();
        let failed = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
        let generation = netfilter::generation().map_err(failed("ask for the rules of nftables"))?;
        if self.read_for.as_ref().is_none_or(|(before, addresses)| (*before, addresses) != (generation, &own))
        {
            self.by_rules = netfilter::ports_of_rules(&own).map_err(failed("read the rules of nftables"))?;
            self.read_for = Some((generation, own.clone()));
        }
        if Tracking::read().is_some_and(|tracking| tracking.followed > 0) {
            let ports = netfilter::ports_of_connections(&own).map_err(failed("read tracked connections"))?;
            self.by_connections.extend(ports.into_iter().map(|port| (port, now)));
        }
        self.by_connections.retain(|_, seen| now.saturating_duration_since(*seen) < REMEMBERED);
        Ok(())
    }

    /// Returns the names of services whose SYNs must not be answered with cookies.
    pub(in crate::daemon) fn services(&self, policy: &Policy) -> Vec<String> {
        let is_translated = |service: &&Service| self.cause(service).is_some();
        cookie_services(policy).filter(is_translated).map(|service| service.name().to_owned()).collect()
    }

    /// Returns sentences about services whose SYNs are not answered with cookies.
    pub(in crate::daemon) fn warnings(&self, policy: &Policy) -> Vec<String> {
        let unread = self.problem.as_ref().filter(|_| cookie_services(policy).next().is_some()).map(|problem| {
            format!("clients that come by SYN cookie cannot connect where this host translates destinations, and that cannot be read: {problem}")
        });
        let off = cookie_services(policy).filter_map(|service| {
            let cause = self.cause(service)?;
            Some(format!(
                "SYN cookies are off for {}, SYN limits still hold: {cause}, so a listener of this host does not get the acknowledgement of its \
                 cookie; give ports that are not translated a service of their own (docs/policy.md, \"SYN cookies and firewalls\")",
                service.name()
            ))
        });
        unread.into_iter().chain(off).collect()
    }

    /// Logs warnings that are new, and when all are over.
    pub(in crate::daemon) fn say(&mut self, policy: &Policy) {
        let warnings = self.warnings(policy);
        for warning in warnings.iter().filter(|warning| !self.said.contains(warning)) {
            log::warning(warning);
        }
        if warnings.is_empty() && !self.said.is_empty() {
            log::info("this host translates no port with SYN cookies any more: they are sent again");
        }
        self.said = warnings;
    }

    fn cause(&self, service: &Service) -> Option<String> {
        netfilter::cause(service, &self.by_rules, self.by_connections.keys().copied())
    }
}

fn cookie_services(policy: &Policy) -> impl Iterator<Item = &Service> {
    policy.services().iter().filter(|service| service.syn_cookies().is_some())
}
