//! A policy made ready for questions: which limits a request has, and which key it is counted under in each.

use std::{
    collections::HashMap,
    hash::{Hash as _, Hasher as _},
    sync::Arc,
};

use super::{
    allowance::{Allowance, AllowanceLimit, lay_out, limit_of},
    api_rules::{ApiRules, LoginRules, Named, Prefixes},
    counter_keys::{CounterKey, CounterKeys, KnownAddress, Subject, shortened, write},
    fleet::Fleet,
    key::KeyHasher,
    lineage::Lineages,
    request::{BadRequest, Request},
};
use crate::policy::{
    ANY_API, Alone, Api, DEFAULT_PLAN, KeyPart, OnRefusal, Policy, RequestLimit, Reserved, Sharing,
};

/// Everything that requests are judged by.
#[derive(Debug, Default)]
pub struct Rules {
    apis: Named<ApiRules>,
    /// The rules of APIs that have no table of their own.
    any: Option<ApiRules>,
    users: Named<UserRules>,
    /// The rules of users that the policy does not name.
    unlisted: UserRules,
    allowances: Vec<Allowance>,
    hasher: KeyHasher,
    /// The hosts that count together, if there are some.
    fleet: Option<Fleet>,
    /// What is remembered of each allowance from policies before.
    lineages: Lineages,
}

#[derive(Debug, Default)]
struct UserRules {
    plan: Option<String>,
    allowance: Option<usize>,
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
            rules.unlisted = UserRules { plan: Some(DEFAULT_PLAN.to_owned()), allowance: *allowance };
        }
        rules.lineages = Lineages::following(&Lineages::default(), &mut rules.allowances, now_us);
        rules
    }

    /// Takes the place of the rules before: keys are hashed as before, limits that stay go on with what they counted, and counts of decisions go on.
    pub fn following(mut self, before: &Self, now_us: u64) -> Self {
        self.hasher = before.hasher;
        self.lineages = Lineages::following(&before.lineages, &mut self.allowances, now_us);
        for api in self.apis.values_mut().chain(&mut self.any) {
            let same =
                before.apis.get(&*api.name).or(before.any.as_ref()).filter(|same| same.name == api.name);
            if let Some(same) = same {
                api.tally = Arc::clone(&same.tally);
            }
        }
        self
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
            known_seed: seed(&format!("known:{}", api.name)),
        });
        ApiRules {
            name: api.name.as_str().into(),
            index,
            tally: Arc::default(),
            escalation: api.escalation,
            key: api.key.clone(),
            allowance,
            by_plan,
            by_user,
            prefixes: Prefixes { ipv4: api.ipv4_prefix, ipv6: api.ipv6_prefix },
            login,
        }
    }

    /// Adds what each user of a plan, or one user, may have over all APIs. Returns the index of the allowance.
    fn personal(&mut self, name: &str, limits: &[RequestLimit], now_us: u64) -> usize {
        self.allowance(name.to_owned(), limits, None, now_us)
    }

    fn allowance(&mut self, name: String, limits: &[RequestLimit], api: Option<&Api>, now_us: u64) -> usize {
        let on_limit = api.map_or(OnRefusal::Refuse, |api| api.on_limit);
        let build =
            |(nth, limit): (usize, &RequestLimit)| limit_of(&name, nth, limits, limit, on_limit, now_us);
        let mut built: Vec<AllowanceLimit> = limits.iter().enumerate().map(build).collect();
        let shape = lay_out(&mut built);
        let header: Vec<String> = (built.iter())
            .map(|limit| format!("\"{}\";q={};w={}", limit.name, limit.quota, limit.window_s))
            .collect();
        let header = header.join(", ");
        // A log in the store has no fixed size, so its amount is not part of the name.
        let layout = |limit: &AllowanceLimit| match limit.meter.keeps_every_unit() {
            true => limit.meter.kin(),
            false => limit.meter.layout(),
        };
        let layouts: Vec<String> = built.iter().map(layout).collect();
        let kind = if api.is_some() { "api" } else { "user" };
        let ancestry = format!("{kind}:{name}");
        let without_store = api.map_or(Alone::Share, |api| api.without_store);
        // Of buckets with a reserve, earlier builds divided the units as well as the period, and cannot read these words: the two count apart.
        let is_bucket = |limit: &AllowanceLimit| limit.meter.bucket().is_some();
        let is_other = without_store == Alone::Reserve && built.iter().any(is_bucket);
        let form = if is_other { "kept-back," } else { "" };
        let store_name = format!("{ancestry}:{form}{}", layouts.join(","));
        let seed = seed(&store_name);
        let sharing = api.map_or(Sharing::Lease, |api| api.sharing);
        let alone = match (sharing, self.fleet) {
            (Sharing::Strict | Sharing::Lease, Some(fleet)) => {
                let alone = fleet.alone(without_store, &built);
                // The store never gives out what hosts keep for themselves.
                if without_store == Alone::Reserve {
                    built.iter_mut().for_each(|limit| fleet.keep_back(limit));
                }
                alone.map(|limits| self.push_alone((&name, &ancestry, seed), &header, limits, on_limit))
            }
            _ => None,
        };
        let reserved = api.map_or_else(Reserved::default, |api| api.reserved);
        let terms = self::seed(&format!("{built:?} {reserved:?} {on_limit:?}"));
        let is_in_store = sharing != Sharing::Local && self.fleet.is_some();
        let id = self.allowances.len();
        self.allowances.push(Allowance {
            id,
            alone,
            limits: built,
            shape,
            on_limit,
            sharing,
            without_store,
            header,
            reserved,
            seed,
            terms,
            salt: 0,
            ancestry: (!is_in_store).then_some(ancestry),
            is_for_one_host: false,
            inherits: Vec::new(),
            store_name,
            name,
        });
        id
    }

    fn push_alone(
        &mut self,
        (name, ancestry, seed): (&str, &str, u64),
        header: &str,
        mut limits: Vec<AllowanceLimit>,
        on_limit: OnRefusal,
    ) -> usize {
        let shape = lay_out(&mut limits);
        let id = self.allowances.len();
        self.allowances.push(Allowance {
            id,
            name: name.to_owned(),
            limits,
            shape,
            on_limit,
            sharing: Sharing::Local,
            without_store: Alone::Local,
            header: header.to_owned(),
            reserved: Reserved::default(),
            seed,
            // The store refuses nothing of what this host gives alone.
            terms: 0,
            salt: 0,
            ancestry: Some(format!("alone:{ancestry}")),
            is_for_one_host: true,
            inherits: Vec::new(),
            store_name: String::new(),
            alone: None,
        });
        id
    }

    /// Returns the counter keys of a request while the store is away; `None` if the host refuses the request then.
    pub fn alone<'r>(&'r self, counters: &CounterKeys<'r>) -> Option<CounterKeys<'r>> {
        let mut alone = CounterKeys::of(counters.api);
        alone.known = counters.known;
        for counter in counters.iter() {
            if counter.allowance.sharing == Sharing::Local {
                alone.push(*counter);
            } else {
                let allowance = &self.allowances[counter.allowance.alone?];
                alone.push(CounterKey {
                    allowance,
                    hash: counter.hash.salted(allowance.salt),
                    subject: counter.subject,
                });
            }
        }
        Some(alone)
    }

    /// All APIs, in the order of the file.
    pub fn apis(&self) -> Vec<&ApiRules> {
        let mut all: Vec<&ApiRules> = self.apis.values().chain(&self.any).collect();
        all.sort_by_key(|api| api.index);
        all
    }

    /// The hasher of all keys, with its secret.
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// Returns the keys that a request is counted under.
    #[inline]
    pub fn counter_keys<'r>(&'r self, request: &Request<'_>) -> Result<CounterKeys<'r>, BadRequest> {
        check(request)?;
        let api =
            self.apis.get(request.api).or(self.any.as_ref()).ok_or_else(|| self.unknown(request.api))?;
        let user = match request.user {
            // Where the key has the user, requests without a name count as those of one unlisted user.
            "" => (api.login.is_some() || api.key.contains(&KeyPart::User)).then_some(&self.unlisted),
            name => Some(self.users.get(name).unwrap_or(&self.unlisted)),
        };
        let mut counters = CounterKeys::of(api);
        if let Some(login) = &api.login {
            let user_and_ip = self.counter(login.per_user_and_ip, Subject::UserAndIp(api), request)?;
            let per_user = self.counter(login.per_user, Subject::User, request)?;
            counters.push(user_and_ip);
            counters.push(self.counter(login.per_ip, Subject::Ip(api), request)?);
            counters.push(per_user);
            let mut known = self.hasher.begin(login.known_seed);
            write(user_and_ip.subject, request, &mut known)?;
            counters.known = Some(KnownAddress {
                hash: known.finish(),
                for_us: login.known_for_us,
                of_other_addresses: per_user.allowance,
            });
        } else {
            let plan = user.and_then(|user| user.plan.as_deref()).and_then(|plan| api.by_plan.get(plan));
            let own = api.by_user.get(request.user);
            let allowance = *own.or(plan).unwrap_or(&api.allowance);
            counters.push(self.counter(allowance, Subject::Api(api), request)?);
        }
        if let Some(allowance) = user.and_then(|user| user.allowance) {
            counters.push(self.counter(allowance, Subject::User, request)?);
        }
        Ok(counters)
    }

    #[inline]
    fn counter<'r>(
        &'r self,
        allowance: usize,
        subject: Subject<'r>,
        request: &Request<'_>,
    ) -> Result<CounterKey<'r>, BadRequest> {
        let allowance = &self.allowances[allowance];
        let mut key = self.hasher.begin(allowance.seed);
        write(subject, request, &mut key)?;
        Ok(CounterKey { allowance, hash: key.finish().salted(allowance.salt), subject })
    }

    fn unknown(&self, api: &str) -> BadRequest {
        let mut known: Vec<String> = self.apis.keys().cloned().collect();
        known.sort_unstable();
        BadRequest::UnknownApi { api: shortened(api), known }
    }
}

fn check(request: &Request<'_>) -> Result<(), BadRequest> {
    if request.cost == 0 { Err(BadRequest::NoCost) } else { Ok(()) }
}

fn seed(name: &str) -> u64 {
    // Hashed without a secret: the secret comes with the key, and a name has the same seed in every version of a policy.
    let mut hasher = siphasher::sip::SipHasher13::new();
    name.hash(&mut hasher);
    hasher.finish()
}
