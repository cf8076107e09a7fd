//! A policy made ready for questions: which limits a request has, and which key it is counted under in each.

use std::{
    collections::HashMap,
    hash::{Hash as _, Hasher as _},
    net::IpAddr,
    sync::Arc,
};

use ratelimit_common::limit::{
    manner::{Algorithm, Throttle},
    rate::Period,
};

use super::{
    calendar::{Calendar, CalendarUnit},
    fleet::Fleet,
    key::{Hash, KeyHasher, KeyWriter},
    meter::{Bucket, Fixed, Log, Meter, Sliding, Weighted},
    request::{BadRequest, MAX_PART, Priority, Request},
};
use crate::policy::{
    ANY_API, Alone, Api, DEFAULT_PLAN, Escalation, KeyPart, OnRefusal, Policy, RequestLimit, Reserved,
    Sharing,
};

/// Limits that one request can have at once: an API's and a plan's, or the three of a login and a plan's.
pub const MAX_CLAIMS: usize = 4;

/// Everything that requests are judged by.
#[derive(Debug, Default)]
pub struct Rules {
    apis: HashMap<String, ApiRules>,
    /// For APIs that have no table of their own.
    any: Option<ApiRules>,
    users: HashMap<String, UserRules>,
    /// For users that the policy does not name.
    stranger: UserRules,
    allowances: Vec<Allowance>,
    hasher: KeyHasher,
    /// The hosts that count together, if there are some.
    fleet: Option<Fleet>,
}

/// One API.
#[derive(Debug)]
pub struct ApiRules {
    /// Its name, as counters have it.
    pub name: Arc<str>,
    /// Its place among all, for counters.
    pub index: usize,
    /// When a caller is blocked.
    pub escalation: Option<Escalation>,
    key: Vec<KeyPart>,
    allowance: usize,
    by_plan: HashMap<String, usize>,
    by_user: HashMap<String, usize>,
    prefixes: Prefixes,
    login: Option<LoginRules>,
}

#[derive(Debug)]
struct LoginRules {
    per_ip: usize,
    per_user_and_ip: usize,
    per_user: usize,
    known_for_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Prefixes {
    ipv4: u8,
    ipv6: u8,
}

#[derive(Debug, Default)]
struct UserRules {
    plan: Option<String>,
    allowance: Option<usize>,
}

/// What one key may have: limits that all hold.
#[derive(Debug)]
pub struct Allowance {
    /// Its place among all.
    pub id: usize,
    /// What it is called.
    pub name: String,
    /// All of them must hold.
    pub limits: Vec<Limit>,
    /// Words that a key needs.
    pub words: usize,
    /// What happens above a limit.
    pub on_limit: OnRefusal,
    /// How hosts count together.
    pub sharing: Sharing,
    /// What a host does that cannot reach the store.
    pub without_store: Alone,
    /// Names and limits as the `RateLimit-Policy` field has them.
    pub header: String,
    reserved: Reserved,
    /// Tells keys of this allowance from all others. The same as long as names and layouts are: a change of numbers keeps what was counted.
    seed: u64,
    /// What keys of this allowance are called in the store.
    store_name: String,
    /// What this host gives of it when it cannot reach the store.
    alone: Option<usize>,
}

/// One limit.
#[derive(Debug)]
pub struct Limit {
    /// What it is called.
    pub name: String,
    /// Units in a window, for people and headers.
    pub quota: u64,
    /// The window, for people and headers.
    pub window_s: u64,
    /// How it is counted.
    pub meter: Meter,
    /// The same with the margin above it.
    pub(super) margin: Option<Margin>,
    /// Whether requests wait in it for their turn.
    pub queue: bool,
    /// Where its words begin.
    pub at: usize,
}

#[derive(Debug)]
pub(super) struct Margin {
    pub(super) meter: Meter,
    elastic: bool,
}

/// How a limit is counted at the moment.
#[derive(Clone, Copy, Debug)]
pub struct InForce<'r> {
    /// The algorithm.
    pub meter: &'r Meter,
    /// Units of the meter that are held back.
    pub held_back: u64,
    /// Units that are above the limit itself.
    pub margin: u64,
}

/// One key of one request.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'r> {
    /// What the key may have.
    pub allowance: &'r Allowance,
    /// The key.
    pub hash: Hash,
    /// Which parts of the request it is made of.
    pub subject: Subject<'r>,
}

/// Which parts of a request a key is made of.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'r> {
    /// Those that the API names.
    Api(&'r ApiRules),
    /// The user, over all APIs.
    User,
    /// The address, for logins.
    Ip(&'r ApiRules),
    /// Both, for logins.
    UserAndIp(&'r ApiRules),
}

/// All keys of one request.
#[derive(Debug)]
pub struct Claims<'r> {
    /// Which API it is for.
    pub api: &'r ApiRules,
    list: [Option<Claim<'r>>; MAX_CLAIMS],
    /// For a login: where it is kept that this user has logged in from this address.
    pub known: Option<Known<'r>>,
}

/// A user and an address it may have logged in from.
#[derive(Clone, Copy, Debug)]
pub struct Known<'r> {
    /// The pair.
    pub hash: Hash,
    /// For how long it stays known.
    pub for_us: u64,
    /// What strangers to this user share.
    pub of_strangers: &'r Allowance,
}

impl<'r> Claims<'r> {
    fn push(&mut self, claim: Claim<'r>) {
        if let Some(place) = self.list.iter_mut().find(|place| place.is_none()) {
            *place = Some(claim);
        }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Claim<'r>> {
        self.list.iter().flatten()
    }

    /// Those that this host counts for itself.
    pub fn local(&self) -> Self {
        let list = self.list.map(|claim| claim.filter(|claim| claim.allowance.sharing == Sharing::Local));
        Self { api: self.api, list, known: self.known }
    }

    /// Leaves out what counts for strangers only.
    pub fn forget_strangers(&mut self) {
        let Some(known) = self.known else { return };
        for place in &mut self.list {
            if place.is_some_and(|claim| std::ptr::eq(claim.allowance, known.of_strangers)) {
                *place = None;
            }
        }
    }
}

impl Limit {
    /// How it is counted while the host has headroom, or has none.
    pub fn in_force(&self, headroom: bool) -> InForce<'_> {
        match &self.margin {
            None => InForce { meter: &self.meter, held_back: 0, margin: 0 },
            Some(Margin { meter, elastic }) if headroom || !elastic => {
                InForce { meter, held_back: 0, margin: meter.capacity() - self.meter.capacity() }
            }
            // Words of a bucket mean the same at any rate; those of others are counted as they are, up to the limit.
            Some(Margin { meter, .. }) => match &self.meter {
                plain @ Meter::Bucket(_) => InForce { meter: plain, held_back: 0, margin: 0 },
                _ => InForce { meter, held_back: meter.capacity() - self.meter.capacity(), margin: 0 },
            },
        }
    }
}

impl InForce<'_> {
    /// Units that a key may have now.
    pub fn left(&self, words: &[u64], now_us: u64) -> u64 {
        self.meter.left(words, now_us).saturating_sub(self.held_back)
    }

    /// How long until so many units are there.
    pub fn wait(&self, words: &[u64], now_us: u64, units: u64) -> u64 {
        self.meter.wait(words, now_us, units.saturating_add(self.held_back))
    }
}

impl Allowance {
    /// Units of a limit of this capacity that a request of this priority leaves alone.
    pub fn reserved(&self, priority: Priority, capacity: u64) -> u64 {
        let percent = match priority {
            Priority::Critical => 0,
            Priority::Normal => self.reserved.critical,
            Priority::Background => self.reserved.critical + self.reserved.normal,
        };
        match percent {
            // Mostly; a division of this width would be a third of a decision.
            0 => 0,
            percent => (u128::from(capacity) * u128::from(percent)).div_ceil(100) as u64,
        }
    }

    /// What keys of this allowance are called in the store.
    pub fn store_name(&self) -> &str {
        &self.store_name
    }

    /// The most that a key may have at once.
    pub fn capacity(&self) -> u64 {
        self.limits.iter().map(|limit| limit.meter.capacity()).min().unwrap_or(0)
    }
}

impl Rules {
    /// The rules of a policy. `now_us` is where calendars begin.
    pub fn new(policy: &Policy, now_us: u64) -> Self {
        let fleet = policy.cluster().map(|cluster| Fleet::new(cluster.hosts(), cluster.reserve().permille()));
        let mut rules = Self { fleet, ..Self::default() };
        for (index, api) in policy.requests().apis.iter().enumerate() {
            let of_api = rules.api(api, index, now_us);
            if api.name == ANY_API {
                rules.any = Some(of_api);
            } else {
                rules.apis.insert(api.name.clone(), of_api);
            }
        }
        let mut plans = HashMap::new();
        for plan in policy.users().plans() {
            let limits = plan.requests();
            let allowance = (!limits.is_empty()).then(|| rules.personal(plan.name(), limits, now_us));
            plans.insert(plan.name(), allowance);
        }
        for user in policy.users().iter() {
            let of_plan = user.plan().and_then(|plan| plans.get(plan).copied().flatten());
            let own = user.requests();
            let allowance = match own {
                Some([]) => None,
                Some(own) => Some(rules.personal(user.name(), own, now_us)),
                None => of_plan,
            };
            let plan = user.plan().map(ToOwned::to_owned);
            rules.users.insert(user.name().to_owned(), UserRules { plan, allowance });
        }
        if let Some(allowance) = plans.get(DEFAULT_PLAN) {
            rules.stranger = UserRules { plan: Some(DEFAULT_PLAN.to_owned()), allowance: *allowance };
        }
        rules
    }

    /// The same rules with keys hashed by a secret that is known: for tests that aim at collisions.
    pub fn with_hasher(self, hasher: KeyHasher) -> Self {
        Self { hasher, ..self }
    }

    fn api(&mut self, api: &Api, index: usize, now_us: u64) -> ApiRules {
        let mut of = |name: String, limits: &[RequestLimit]| self.allowance(name, limits, Some(api), now_us);
        let allowance = of(api.name.clone(), &api.limits);
        let by_plan = (api.by_plan.iter())
            .map(|(plan, limits)| (plan.clone(), of(format!("{}@{plan}", api.name), limits)))
            .collect();
        let by_user = (api.by_user.iter())
            .map(|(user, limits)| (user.clone(), of(format!("{}@{user}", api.name), limits)))
            .collect();
        let login = api.login.as_ref().map(|login| LoginRules {
            per_ip: of(format!("{}.ip", api.name), &login.per_ip),
            per_user_and_ip: of(format!("{}.user-and-ip", api.name), &login.per_user_and_ip),
            per_user: of(format!("{}.user", api.name), &login.per_user),
            known_for_us: login.known_for.as_micros() as u64,
        });
        ApiRules {
            name: api.name.as_str().into(),
            index,
            escalation: api.escalation,
            key: api.key.clone(),
            allowance,
            by_plan,
            by_user,
            prefixes: Prefixes { ipv4: api.ipv4_prefix, ipv6: api.ipv6_prefix },
            login,
        }
    }

    /// What each user of a plan, or one user, may have over all APIs.
    fn personal(&mut self, name: &str, limits: &[RequestLimit], now_us: u64) -> usize {
        self.allowance(name.to_owned(), limits, None, now_us)
    }

    fn allowance(&mut self, name: String, limits: &[RequestLimit], api: Option<&Api>, now_us: u64) -> usize {
        let on_limit = api.map_or(OnRefusal::Refuse, |api| api.on_limit);
        let mut words = 0;
        let mut built = Vec::with_capacity(limits.len());
        for (nth, limit) in limits.iter().enumerate() {
            let limit = limit_of(&name, nth, limits, limit, on_limit, now_us);
            let limit = Limit { at: words, ..limit };
            words += limit.margin.as_ref().map_or(&limit.meter, |margin| &margin.meter).words();
            built.push(limit);
        }
        let header: Vec<String> = (built.iter())
            .map(|limit| format!("\"{}\";q={};w={}", limit.name, limit.quota, limit.window_s))
            .collect();
        let layouts: Vec<String> = built.iter().map(|limit| limit.meter.layout()).collect();
        let kind = if api.is_some() { "api" } else { "user" };
        let store_name = format!("{kind}:{name}:{}", layouts.join(","));
        let without_store = api.map_or(Alone::Share, |api| api.without_store);
        let sharing = api.map_or(Sharing::Lease, |api| api.sharing);
        let alone = match (sharing, self.fleet) {
            (Sharing::Strict | Sharing::Lease, Some(fleet)) => {
                let alone = fleet.alone(without_store, &built);
                // What hosts keep for themselves the store never gives out.
                if without_store == Alone::Reserve {
                    built.iter_mut().for_each(|limit| fleet.keep_back(limit));
                }
                alone.map(|limits| self.push_alone(&name, limits, on_limit))
            }
            _ => None,
        };
        let id = self.allowances.len();
        self.allowances.push(Allowance {
            id,
            alone,
            limits: built,
            words,
            on_limit,
            sharing,
            without_store,
            header: header.join(", "),
            reserved: api.map_or_else(Reserved::default, |api| api.reserved),
            seed: seed(&store_name),
            store_name,
            name,
        });
        id
    }

    fn push_alone(&mut self, name: &str, limits: Vec<Limit>, on_limit: OnRefusal) -> usize {
        let words = limits.iter().map(|limit| limit.at + limit.meter.words()).max().unwrap_or(0);
        let id = self.allowances.len();
        self.allowances.push(Allowance {
            id,
            name: name.to_owned(),
            limits,
            words,
            on_limit,
            sharing: Sharing::Local,
            without_store: Alone::Local,
            header: String::new(),
            reserved: Reserved::default(),
            seed: 0,
            store_name: String::new(),
            alone: None,
        });
        id
    }

    /// The same request as a host judges it that cannot reach the store; none if it refuses then.
    pub fn alone<'r>(&'r self, claims: &Claims<'r>) -> Option<Claims<'r>> {
        let mut alone = Claims { api: claims.api, list: [None; MAX_CLAIMS], known: claims.known };
        for claim in claims.iter() {
            if claim.allowance.sharing == Sharing::Local {
                alone.push(*claim);
            } else {
                let allowance = &self.allowances[claim.allowance.alone?];
                alone.push(Claim { allowance, hash: claim.hash.other(), subject: claim.subject });
            }
        }
        Some(alone)
    }

    /// The names of all APIs, in the order of the file.
    pub fn api_names(&self) -> Vec<Arc<str>> {
        let mut all: Vec<&ApiRules> = self.apis.values().chain(&self.any).collect();
        all.sort_by_key(|api| api.index);
        all.into_iter().map(|api| Arc::clone(&api.name)).collect()
    }

    /// Which of them that is.
    pub fn index_of(&self, api: &str) -> Option<usize> {
        self.apis.get(api).or(self.any.as_ref()).map(|api| api.index)
    }

    /// What keys are hashed with.
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// The keys that a request is counted under.
    pub fn claims<'r>(&'r self, request: &Request<'_>) -> Result<Claims<'r>, BadRequest> {
        check(request)?;
        let api =
            self.apis.get(request.api).or(self.any.as_ref()).ok_or_else(|| self.unknown(request.api))?;
        let user = match request.user {
            "" => None,
            name => Some(self.users.get(name).unwrap_or(&self.stranger)),
        };
        let mut claims = Claims { api, list: [None; MAX_CLAIMS], known: None };
        if let Some(login) = &api.login {
            let user_and_ip = self.claim(login.per_user_and_ip, Subject::UserAndIp(api), request)?;
            let per_user = self.claim(login.per_user, Subject::User, request)?;
            claims.push(user_and_ip);
            claims.push(self.claim(login.per_ip, Subject::Ip(api), request)?);
            claims.push(per_user);
            claims.known = Some(Known {
                hash: user_and_ip.hash.other(),
                for_us: login.known_for_us,
                of_strangers: per_user.allowance,
            });
        } else {
            let plan = user.and_then(|user| user.plan.as_deref()).and_then(|plan| api.by_plan.get(plan));
            let own = api.by_user.get(request.user);
            let allowance = *own.or(plan).unwrap_or(&api.allowance);
            if !self.allowances[allowance].limits.is_empty() {
                claims.push(self.claim(allowance, Subject::Api(api), request)?);
            }
        }
        if let Some(allowance) = user.and_then(|user| user.allowance) {
            claims.push(self.claim(allowance, Subject::User, request)?);
        }
        Ok(claims)
    }

    fn claim<'r>(
        &'r self,
        allowance: usize,
        subject: Subject<'r>,
        request: &Request<'_>,
    ) -> Result<Claim<'r>, BadRequest> {
        let allowance = &self.allowances[allowance];
        let mut key = self.hasher.begin(allowance.seed);
        write(subject, request, &mut key)?;
        Ok(Claim { allowance, hash: key.finish(), subject })
    }

    fn unknown(&self, api: &str) -> BadRequest {
        let mut known: Vec<String> = self.apis.keys().cloned().collect();
        known.sort_unstable();
        BadRequest::UnknownApi { api: api.to_owned(), known }
    }
}

/// Writes the parts of a request that a key is made of.
pub fn write(
    subject: Subject<'_>,
    request: &Request<'_>,
    key: &mut impl KeyWriter,
) -> Result<(), BadRequest> {
    let missing = |part: &str| BadRequest::Missing { part: part.to_owned(), api: request.api.to_owned() };
    let ip = |api: &ApiRules| request.ip.map(|ip| network(ip, api.prefixes)).ok_or_else(|| missing("ip"));
    let user = || if request.user.is_empty() { Err(missing("user")) } else { Ok(request.user) };
    match subject {
        Subject::User => key.text(user()?),
        Subject::Ip(api) => key.address(ip(api)?),
        Subject::UserAndIp(api) => {
            key.text(user()?);
            key.address(ip(api)?);
        }
        Subject::Api(api) => {
            for part in &api.key {
                match part {
                    KeyPart::User => key.text(user()?),
                    KeyPart::Ip => key.address(ip(api)?),
                    KeyPart::Api => key.text(request.api),
                    KeyPart::Other(name) => {
                        let given = request.parts.iter().find(|(part, _)| part == name);
                        key.text(given.ok_or_else(|| missing(name))?.1);
                    }
                }
            }
        }
    }
    Ok(())
}

fn check(request: &Request<'_>) -> Result<(), BadRequest> {
    if request.cost == 0 {
        return Err(BadRequest::NoCost);
    }
    let named = [("user", request.user), ("api", request.api)];
    for (part, text) in named.into_iter().chain(request.parts.iter().copied()) {
        if text.len() > MAX_PART {
            return Err(BadRequest::TooLong { part: part.chars().take(64).collect(), length: text.len() });
        }
    }
    Ok(())
}

/// The network that an address is counted as. IPv4 in IPv6 is IPv4.
fn network(ip: IpAddr, prefixes: Prefixes) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefixes.ipv4.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(ip) & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefixes.ipv6.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(ip) & mask).into())
        }
    }
}

fn limit_of(
    of: &str,
    nth: usize,
    all: &[RequestLimit],
    limit: &RequestLimit,
    on_limit: OnRefusal,
    now_us: u64,
) -> Limit {
    let rate = &limit.rate;
    // One name for one limit, and a number where several have the same period.
    let same = all[..nth].iter().filter(|other| other.rate.period == rate.period).count();
    let name = match (all.len(), same) {
        (1, _) => of.to_owned(),
        (_, 0) => format!("{of}-{}", rate.period.name()),
        (_, same) => format!("{of}-{}-{}", rate.period.name(), same + 1),
    };
    let percent = rate.manner.margin(true);
    let margin = (percent > 0).then(|| Margin {
        meter: meter(limit, percent, now_us),
        elastic: matches!(rate.manner.throttle, Throttle::Elastic(_)),
    });
    let leaky = rate.manner.algorithm == Algorithm::LeakyBucket;
    Limit {
        name,
        quota: rate.amount,
        window_s: rate.period.ns() / 1_000_000_000,
        meter: meter(limit, 0, now_us),
        margin,
        queue: leaky && matches!(on_limit, OnRefusal::Delay(_)),
        at: 0,
    }
}

fn meter(limit: &RequestLimit, percent: u32, now_us: u64) -> Meter {
    let rate = &limit.rate;
    let wide = |number: u64| (u128::from(number) * (100 + u128::from(percent)) / 100) as u64;
    let period_us = rate.period.ns() / 1_000;
    match rate.manner.algorithm {
        // A hundred periods, so that percents are whole; the same with and without them, so that words mean the same.
        Algorithm::TokenBucket | Algorithm::LeakyBucket if rate.manner.margin(true) > 0 => Meter::Bucket(
            Bucket::new(rate.amount * (100 + u64::from(percent)), period_us * 100, wide(rate.burst)),
        ),
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            Meter::Bucket(Bucket::new(rate.amount, period_us, rate.burst))
        }
        Algorithm::FixedWindow => Meter::Fixed(fixed(limit, wide(rate.amount), period_us, now_us)),
        Algorithm::SlidingWindow => Meter::Sliding(Sliding::new(wide(rate.amount), period_us)),
        Algorithm::SlidingWindowWeighted => Meter::Weighted(Weighted::new(wide(rate.amount), period_us)),
        Algorithm::SlidingLog => Meter::Log(Log::new(wide(rate.amount), period_us)),
    }
}

fn fixed(limit: &RequestLimit, amount: u64, period_us: u64, now_us: u64) -> Fixed {
    let unit = match limit.rate.period {
        Period::Day => Some(CalendarUnit::Day),
        Period::Month => Some(CalendarUnit::Month),
        _ => None,
    };
    let calendar = limit.zone.as_deref().zip(unit).map(|(zone, unit)| Calendar::new(zone, unit, now_us));
    match calendar {
        Some(Ok(calendar)) => Fixed::by(amount, calendar),
        // A policy's zones have been checked when it was made.
        _ => Fixed::new(amount, period_us),
    }
}

fn seed(name: &str) -> u64 {
    // Keyed by nothing: the secret comes with the key, and the same name has the same seed in every version of a policy.
    let mut hasher = siphasher::sip::SipHasher13::new();
    name.hash(&mut hasher);
    hasher.finish()
}
