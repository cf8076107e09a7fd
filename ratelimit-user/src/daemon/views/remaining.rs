//! The parts of views beside counters and samples: the policy in force, attacks that go on, what sources, users and services have left of their limits, and the hosts of
//! the cluster.
//!
//! The rows of a view are looked up once a second, and only while somebody looks. A look-up from user space does not mark an entry of the table of
//! sources as used, so it does not change which entries are evicted.

use std::net::IpAddr;

use super::explain::setting;
use crate::{
    cluster::members::{Member, State},
    control::protocol::ActiveAttack,
    daemon::{
        host::{Host, HostCell},
        orders::{clients::is_known, users},
        traffic::{ViewSource, ViewedHost},
    },
    dataplane::probe,
    explain::{LimitState, remaining},
    stats::{
        flow::ServiceFlow,
        remaining::{ClusterHost, LimitLeft},
        talkers::Talker,
        view::StatsView,
    },
};

/// The number of rows that are looked up under one lock of the host, which takes about a tenth of a millisecond.
const AT_ONCE: usize = 16;
/// The largest number of hosts in a view.
const MOST_HOSTS: usize = 256;

impl ViewSource for HostCell {
    fn look(&self) -> ViewedHost {
        let host = self.host();
        let (meters, services) = (host.meters(), host.services());
        let (policy, attack_state) = (host.policy().clone(), host.attack.watch.attack_state().name());
        ViewedHost { meters, services, policy, attack_state }
    }

    fn fill_in(&self, view: &mut StatsView) {
        for sources in view.sources.chunks_mut(AT_ONCE) {
            of_sources(&self.host(), sources);
        }
        for users in view.users.chunks_mut(AT_ONCE) {
            of_users(&self.host(), users);
        }
        for services in view.services.chunks_mut(AT_ONCE) {
            of_services(&self.host(), services);
        }
        view.attacks = self.host().attacks.status().active.iter().map(ActiveAttack::words).collect();
        if let Some(cluster) = &self.host().cluster {
            view.hosts = cluster.gossip.members().iter().take(MOST_HOSTS).map(cluster_host).collect();
            view.hosts.sort_by(|one, other| one.host.cmp(&other.host));
        }
    }
}

fn of_services(host: &Host, services: &mut [ServiceFlow]) {
    let Some(kernel) = host.enforced.maps.policy() else { return };
    let setting = setting(host, &kernel);
    for service in services {
        let totals = remaining::of_service(&host.enforced.maps, &setting, &service.service);
        let left = |limit: LimitState| limit_left("total", limit);
        service.totals = totals.unwrap_or_default().into_iter().map(left).collect();
    }
}

fn of_sources(host: &Host, sources: &mut [Talker]) {
    let Some(kernel) = host.enforced.maps.policy() else { return };
    let (setting, clients) = (setting(host, &kernel), host.clients());
    for talker in sources {
        let Some(address) = talker.source.as_deref().and_then(first_address) else { continue };
        talker.known = is_known(&host.enforced.desired, &clients, address, talker.service.as_deref());
        let limits = remaining::of_source(&host.enforced.maps, &setting, address, talker.service.as_deref());
        talker.limits =
            limits.unwrap_or_default().into_iter().map(|(whose, limit)| limit_left(whose, limit)).collect();
    }
}

fn of_users(host: &Host, talkers: &mut [Talker]) {
    let (now_ns, Ok(table)) = (probe::now_ns(), host.enforced.maps.users_in_force()) else { return };
    for talker in talkers {
        let Some(name) = &talker.user else { continue };
        let buckets = users::buckets_of(host, &table, name, now_ns).unwrap_or_default();
        let left = buckets.into_iter().map(|bucket| LimitLeft {
            leased: bucket.leased,
            share_percent: bucket.share_percent,
            ..LimitLeft::new("user", bucket.limit, bucket.left, bucket.burst)
        });
        talker.limits = left.collect();
    }
}

/// Returns the first address of a source. All addresses of a source share one key, so any of them finds its entries.
fn first_address(source: &str) -> Option<IpAddr> {
    source.split('/').next()?.parse().ok()
}

fn limit_left(whose: &str, limit: LimitState) -> LimitLeft {
    LimitLeft { leased: limit.leased, ..LimitLeft::new(whose, limit.rate, limit.left, limit.capacity) }
}

fn cluster_host(member: &Member) -> ClusterHost {
    let state = match member.state {
        State::Here => "here",
        State::Late => "late",
        State::Away => "away",
    };
    ClusterHost {
        host: member.host.clone(),
        state: state.to_owned(),
        seen_ms_ago: member.seen_ms_ago,
        behind: member.behind,
        leases: member.facts.leases,
        round_trip_us: member.facts.round_trip_us,
        program: member.facts.program.clone(),
    }
}
