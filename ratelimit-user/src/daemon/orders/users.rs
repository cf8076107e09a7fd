//! Orders about users of the running policy.

use ratelimit_common::{
    abi::{Bucket, LimitSet, lease::lease_place},
    limit::{
        gcra::{self, Start},
        level::Level,
        rate::Rate,
    },
};

use super::{
    caller::By,
    settings::{Assignments, Save},
};
use crate::{
    compile::{self, HostFacts},
    control::protocol::{Operator, Reply, UserBucket, UserInfo, UserOrder},
    daemon::{
        host::Host,
        in_force::{
            PolicyInForce,
            enforcer::{EnforcedPolicy, Enforcer},
        },
    },
    dataplane::kernel::UserTable,
    failure::{ExitCode, Failure},
    log,
    policy::{LimitList, OF_PLAN, Policy, Setting, User, words},
};

/// Returns all users of a policy, without their buckets.
pub(in crate::daemon) fn users(policy: &Policy) -> Vec<UserInfo> {
    policy.users().iter().map(info).collect()
}

/// Returns all users with limits on packets, and how much of each limit is left.
pub(in crate::daemon) fn users_with_buckets(host: &Host, now_ns: u64) -> Result<Vec<UserInfo>, Failure> {
    let limited = host.policy().users().iter().filter(|user| !user.network().is_empty());
    let table = host.enforced.maps.users_in_force()?;
    limited.map(|user| with_buckets(host, &table, user, now_ns)).collect()
}

/// Returns one user, and how much of each of its limits is left.
pub(in crate::daemon) fn user(host: &Host, name: &str, now_ns: u64) -> Result<Reply, Failure> {
    let user = known(host.policy(), name)?;
    let table = host.enforced.maps.users_in_force()?;
    Ok(Reply::Users(vec![with_buckets(host, &table, user, now_ns)?]))
}

fn with_buckets(host: &Host, table: &UserTable<'_>, user: &User, now_ns: u64) -> Result<UserInfo, Failure> {
    Ok(UserInfo { buckets: Some(buckets_of(host, table, user.name(), now_ns)?), ..info(user) })
}

/// Returns how much is left of each limit of a user.
pub(in crate::daemon) fn buckets_of(
    host: &Host,
    table: &UserTable<'_>,
    name: &str,
    now_ns: u64,
) -> Result<Vec<UserBucket>, Failure> {
    let user = known(host.policy(), name)?;
    let index = place_of(&host.enforced, user.name())?;
    let (set, bucket) = table.user(index)?;
    let held = |place: usize| {
        let cluster = host.cluster.as_ref().filter(|_| set.is_leased(place))?;
        let at = lease_place(index, place as u32);
        Some((cluster.leases.held_at(at, now_ns)?, cluster.leases.share_at(at)?))
    };
    let now_q8 = gcra::time_q8(now_ns);
    Ok(buckets(user.network(), &host.enforced.facts, &set, &bucket, now_q8, held))
}

/// Gives a user another plan, limits of its own, or the limits of its plan again, from the next packet on.
pub(in crate::daemon) fn set_user(
    in_force: &mut PolicyInForce,
    order: &UserOrder,
    (operator, by): (&Operator, &By<'_>),
    enforcer: &mut Enforcer<'_>,
) -> Result<Reply, Failure> {
    let name = &order.name;
    known(in_force.policy(), name)?;
    let mut settings = Vec::new();
    if let Some(plan) = &order.plan {
        settings.push((Setting::Plan { user: name.clone() }, plan.clone()));
    }
    let own = match (order.inherit, order.network.as_slice()) {
        (true, []) => Some(OF_PLAN.to_owned()),
        (false, []) => None,
        (false, network) => Some(network.join(", ")),
        (true, _) => return Err(Failure::usage("--inherit and --network exclude each other; use one")),
    };
    settings.extend(own.map(|own| (Setting::List(LimitList::User(name.clone())), own)));
    if settings.is_empty() {
        return Err(Failure::usage("nothing to set; use --plan, --network or --inherit"));
    }
    let save = if order.save { Save::Yes } else { Save::No };
    let file = in_force.set(&Assignments { verb: "user set", settings, save, operator }, by, enforcer)?;
    let user = known(in_force.policy(), name)?;
    let plan = user.plan().map_or_else(|| "no plan".to_owned(), |plan| format!("plan {plan}"));
    let stays = order.plan.is_some() && order.network.is_empty() && user.own().is_some();
    let note =
        if stays { "; these are its own and count before its plan's, --inherit ends that" } else { "" };
    let network = words(user.network());
    Ok(Reply::Done(format!("user {name}: {plan}, network {network} from now on{file}{note}")))
}

/// The sentence about requests when a user is reset. They cannot be reset here, because counter keys have parts, such as addresses, that only callers know.
const REQUESTS_STAY: &str = "what was counted of its requests stays, POST /v1/reset forgets that";

/// Gives a user its whole burst of packets again.
pub(in crate::daemon) fn reset_user(host: &mut Host, name: &str, by: &By<'_>) -> Result<Reply, Failure> {
    let policy = host.in_force.policy();
    let user = known(policy, name)?;
    if user.network().is_empty() {
        let why = format!("user {name} has no limits of packets, so nothing was reset; {REQUESTS_STAY}");
        return Err(Failure::new(ExitCode::Found, why));
    }
    let index = place_of(&host.enforced, name)?;
    host.enforced.reset_user(index)?;
    let unheard = host.cluster.as_mut().and_then(|cluster| cluster.reset_in_store(user));
    let done = reset_sentence(name, unheard, policy.limits_requests());
    log::info(format!("user {name} reset by {by}: {done}"));
    Ok(Reply::Done(done))
}

/// Returns the sentence about a reset: the store may not have heard of it, and requests are not part of it.
fn reset_sentence(name: &str, unheard: Option<&str>, has_requests: bool) -> String {
    let packets = match unheard {
        None => format!("user {name} has its whole burst again"),
        Some(why) => format!(
            "user {name} is reset on this host alone: the store does not answer ({why}), and what hosts have spent together stays spent until it has heard of the reset"
        ),
    };
    if has_requests { format!("{packets}, of packets; {REQUESTS_STAY}") } else { packets }
}

fn known<'p>(policy: &'p Policy, name: &str) -> Result<&'p User, Failure> {
    policy.require_user(name).map_err(Failure::usage)
}

fn place_of(enforced: &EnforcedPolicy, name: &str) -> Result<u32, Failure> {
    let missing = || Failure::new(ExitCode::Unsupported, format!("user {name} has no place in the kernel"));
    enforced.desired.names.users.of(name).map(|index| index as u32).ok_or_else(missing)
}

fn info(user: &User) -> UserInfo {
    UserInfo {
        name: user.name().to_owned(),
        plan: user.plan().map(str::to_owned),
        own: user.own().is_some(),
        sources: user.sources().iter().map(ToString::to_string).collect(),
        network: user.network().iter().map(ToString::to_string).collect(),
        buckets: None,
    }
}

/// Returns how much is left of each limit. The kernel keeps the limits in an order of its own.
fn buckets(
    rates: &[Rate],
    facts: &HostFacts,
    set: &LimitSet,
    bucket: &Bucket,
    now_q8: u64,
    held: impl Fn(usize) -> Option<(u64, u64)>,
) -> Vec<UserBucket> {
    let left = |(rate, place): (&Rate, Option<usize>)| {
        let (leased, share_percent) = place.and_then(&held).unzip();
        let own = place.map_or(rate.burst, |place| {
            let (limit, tat_q8) = (&set.limits[place], bucket.tat_q8[place]);
            let start = Start::of(set, limit, now_q8);
            match leased {
                Some(_) => Level::of(tat_q8, limit.tolerance_q8, now_q8, start).left(limit),
                None => left(rate, start.spent_q8(gcra::ahead_q8(tat_q8, now_q8))),
            }
        });
        UserBucket {
            limit: rate.to_string(),
            left: own + leased.unwrap_or(0),
            burst: rate.burst,
            leased,
            share_percent,
        }
    };
    rates.iter().zip(compile::places(rates, set, facts.headroom, facts.reserve)).map(left).collect()
}

/// Returns the units that a bucket has left: its burst less the part that has not been refilled yet.
fn left(rate: &Rate, spent_q8: u64) -> u64 {
    let spent_ns = u128::from(spent_q8) >> gcra::TIME_FRAC_BITS;
    let spent = (spent_ns * u128::from(rate.amount)).div_ceil(u128::from(rate.period.ns()));
    u128::from(rate.burst).saturating_sub(spent) as u64
}

#[cfg(test)]
mod tests {
    use ratelimit_common::limit::text::parse_rate;

    use super::*;

    const FACTS: HostFacts = HostFacts {
        cpus: 1,
        tick_ns: 0,
        secret: [0; 2],
        cookies: false,
        translated: Vec::new(),
        window_scale: None,
        headroom: true,
        reserve: None,
    };

    #[test]
    fn what_is_left_is_the_burst_less_what_has_not_come_back_yet() {
        let rate = parse_rate("10 packets/s burst 100").unwrap();
        let (now, second) = (gcra::time_q8(1_000_000_000_000), gcra::time_q8(1_000_000_000));
        for (tat, expected) in [
            (0, 100),
            (now, 100),
            (now - 1, 100),
            (now + second, 90),
            (now + second / 10, 99),
            (now + 10 * second, 0),
            (now + 99 * second, 0),
        ] {
            assert_eq!(left(&rate, gcra::ahead_q8(tat, now)), expected, "{tat}");
        }
    }

    #[test]
    fn a_reset_says_what_it_did_not_do() {
        assert_eq!(reset_sentence("acme", None, false), "user acme has its whole burst again");
        assert_eq!(
            reset_sentence("acme", None, true),
            "user acme has its whole burst again, of packets; what was counted of its requests stays, POST /v1/reset forgets that"
        );
        let unheard = reset_sentence("acme", Some("Redis is away"), false);
        assert!(
            unheard.starts_with(
                "user acme is reset on this host alone: the store does not answer (Redis is away)"
            )
        );
        assert!(!unheard.contains("whole burst"));
    }

    #[test]
    fn a_limit_finds_its_bucket_wherever_the_kernel_keeps_it() {
        let rates = ["5 packets/s", "1 MB/s", "100 packets/min"].map(|text| parse_rate(text).unwrap());
        let mut set = LimitSet { limit_count: 4, ..LimitSet::NONE };
        // An earlier policy has moved the limit of bytes to the front.
        for (place, at) in [(0, 1), (1, 0), (3, 2)] {
            set.limits[place] = rates[at].limit().unwrap();
        }
        let now = gcra::time_q8(1_000_000_000_000);
        let mut bucket = Bucket::FULL;
        bucket.tat_q8[3] = now + gcra::time_q8(60_000_000_000);
        let left: Vec<u64> =
            buckets(&rates, &FACTS, &set, &bucket, now, |_| None).iter().map(|bucket| bucket.left).collect();
        assert_eq!(left, [5, 1_000_000, 0]);
    }
}
