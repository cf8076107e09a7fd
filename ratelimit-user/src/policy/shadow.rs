//! Finds prefixes of users, or of services, that change nothing, because other prefixes around them or inside them decide instead.

use std::collections::{HashMap, HashSet};

use super::{Prefix, Sources, User, Users};

/// Why a prefix changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shadow {
    /// This wider prefix has the same owner, and no prefix of another owner is in between.
    Around(Prefix),
    /// Longer prefixes of other owners cover every address of it.
    Inside,
}

/// A prefix on the stack of a pass, and what has been found of the prefixes inside it.
struct ShadowFrame {
    owner: usize,
    source: usize,
    prefix: Prefix,
    /// The part of the prefix that prefixes of other owners cover; each address counts once, in the widest of them.
    taken: ShadowShare,
}

/// Every prefix of all users in order, each with its owner's number. It can be updated from one version of a policy to the next.
#[derive(Debug, Default)]
pub struct ShadowOrder {
    sorted: Vec<(Prefix, u32)>,
    /// The owner's number of each user name; users of the first version have their place in the list.
    owners: HashMap<String, u32>,
    next: u32,
}

/// A part of a prefix in units of 2^-127; exact, because each part is a power of two and all together are at most one.
#[derive(Clone, Copy, Default)]
struct ShadowShare(u128);

impl ShadowShare {
    const WHOLE: u128 = 1 << 127;

    /// The part of `outer` that `inner` covers. A part below 2^-127 counts as nothing; real prefixes do not get that small.
    fn of(inner: &Prefix, outer: &Prefix) -> Self {
        Self(Self::WHOLE.checked_shr(u32::from(inner.len() - outer.len())).unwrap_or(0))
    }
}

impl ShadowOrder {
    /// The prefixes of these users, in order.
    pub fn of(users: &Users) -> Self {
        let mut order = Self::default();
        order.follow(&Users::default(), users);
        order
    }

    /// Updates the order from the users `before` to the users `after`. Unchanged users cost next to nothing. Returns whether a prefix was added or removed.
    pub fn follow(&mut self, before: &Users, after: &Users) -> bool {
        let old: HashMap<&str, &User> = before.iter().map(|user| (user.name(), user)).collect();
        let new: HashSet<&str> = after.iter().map(User::name).collect();
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        let none = Sources::default();
        for user in after.iter() {
            let sources = old.get(user.name()).map_or(&none, |user| user.sources());
            let owner = self.owners.get(user.name()).copied().unwrap_or_else(|| {
                self.owners.insert(user.name().to_owned(), self.next);
                self.next += 1;
                self.next - 1
            });
            if sources != user.sources() {
                let difference = sources.difference(user.sources());
                gone.extend(difference.gone.iter().map(|prefix| (*prefix, owner)));
                come.extend(difference.come.iter().map(|prefix| (*prefix, owner)));
            }
        }
        for user in before.iter().filter(|user| !new.contains(user.name())) {
            if let Some(owner) = self.owners.remove(user.name()) {
                gone.extend(user.sources().iter().map(|prefix| (*prefix, owner)));
            }
        }
        if gone.is_empty() && come.is_empty() {
            return false;
        }
        gone.sort_unstable();
        come.sort_unstable();
        let (mut gone, mut come) = (gone.into_iter().peekable(), come.into_iter().peekable());
        let mut sorted = Vec::with_capacity(self.sorted.len() + come.len());
        for entry in &self.sorted {
            while let Some(first) = come.next_if(|one| one < entry) {
                sorted.push(first);
            }
            if gone.next_if_eq(entry).is_none() {
                sorted.push(*entry);
            }
        }
        sorted.extend(come);
        self.sorted = sorted;
        true
    }

    /// Every prefix that changes nothing: its owner's number, the prefix, and why.
    pub fn shadows(&self) -> Vec<(u32, Prefix, Shadow)> {
        let claims =
            self.sorted.iter().enumerate().map(|(at, (prefix, owner))| (*prefix, *owner as usize, at));
        let prefix = |(owner, at, why): (usize, usize, Shadow)| (owner as u32, self.sorted[at].0, why);
        pass(claims).into_iter().map(prefix).collect()
    }
}

/// A prefix, its owner's number, and its place among the owner's prefixes.
pub(super) type OwnedPrefix = (Prefix, usize, usize);

/// Every prefix that changes nothing: its owner, its place there, and why. Of two equal prefixes, the later owner's one decides.
pub(super) fn shadows_of(mut all: Vec<OwnedPrefix>) -> Vec<(usize, usize, Shadow)> {
    all.sort_unstable();
    pass(all.into_iter())
}

/// Finds shadowed prefixes in one pass: in sorted order a prefix comes before all prefixes inside it, so the prefixes around the current one form a stack.
fn pass(sorted: impl Iterator<Item = OwnedPrefix>) -> Vec<(usize, usize, Shadow)> {
    let mut found: HashMap<(usize, usize), Shadow> = HashMap::new();
    let mut around: Vec<ShadowFrame> = Vec::new();
    for (prefix, owner, source) in sorted {
        while around.last().is_some_and(|wider| !wider.prefix.covers(&prefix)) {
            close(around.pop(), &mut found);
        }
        if let Some(wider) = around.last_mut() {
            if wider.owner == owner {
                found.insert((owner, source), Shadow::Around(wider.prefix));
            } else {
                wider.taken.0 += ShadowShare::of(&prefix, &wider.prefix).0;
            }
        }
        around.push(ShadowFrame { owner, source, prefix, taken: ShadowShare::default() });
    }
    while let Some(frame) = around.pop() {
        close(Some(frame), &mut found);
    }
    let mut shadows: Vec<_> = found.into_iter().map(|((owner, source), why)| (owner, source, why)).collect();
    shadows.sort_unstable_by_key(|(owner, source, _)| (*owner, *source));
    shadows
}

fn close(frame: Option<ShadowFrame>, found: &mut HashMap<(usize, usize), Shadow>) {
    if let Some(frame) = frame.filter(|frame| frame.taken.0 == ShadowShare::WHOLE) {
        found.insert((frame.owner, frame.source), Shadow::Inside);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn users(sources: &[&[Prefix]]) -> Users {
        let user = |(n, sources): (usize, &&[Prefix])| {
            User::new(format!("u{n}"), None, sources.iter().copied().collect(), None)
        };
        Users::new(sources.iter().enumerate().map(user).collect(), Vec::new(), &Users::default()).unwrap()
    }

    fn found(sources: &[&[&str]]) -> Vec<(u32, String, Shadow)> {
        let parsed: Vec<Vec<Prefix>> =
            sources.iter().map(|of| of.iter().map(|text| text.parse().unwrap()).collect()).collect();
        let order = ShadowOrder::of(&users(&parsed.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        order.shadows().into_iter().map(|(owner, prefix, why)| (owner, prefix.to_string(), why)).collect()
    }

    #[test]
    fn a_prefix_inside_one_of_the_same_user_changes_nothing_unless_anothers_is_in_between() {
        let wide = "10.0.0.0/8".parse().unwrap();
        assert_eq!(
            found(&[&["10.1.0.0/16", "10.0.0.0/8"]]),
            [(0, "10.1.0.0/16".to_owned(), Shadow::Around(wide))]
        );
        assert_eq!(found(&[&["10.0.0.0/8", "10.1.2.0/24"], &["10.1.0.0/16"]]), []);
        assert_eq!(found(&[&["10.0.0.0/8", "11.0.0.0/8", "::/0"]]), []);
    }

    #[test]
    fn a_prefix_that_longer_ones_of_others_fill_changes_nothing() {
        assert_eq!(
            found(&[&["10.0.0.0/24"], &["10.0.0.0/25"], &["10.0.0.128/25"]]),
            [(0, "10.0.0.0/24".to_owned(), Shadow::Inside)]
        );
        assert_eq!(found(&[&["10.0.0.0/24"], &["10.0.0.0/25", "10.0.0.192/26"]]), [], "a quarter is left");
        assert_eq!(
            found(&[
                &["10.0.0.0/24"],
                &["10.0.0.0/25", "10.0.0.192/26"],
                &["10.0.0.128/26", "10.0.0.128/32"]
            ]),
            [
                (0, "10.0.0.0/24".to_owned(), Shadow::Inside),
                (2, "10.0.0.128/32".to_owned(), Shadow::Around("10.0.0.128/26".parse().unwrap()))
            ],
            "what is inside what is inside counts once"
        );
        assert_eq!(found(&[&["::/0"], &["::/1"], &["8000::/1"]]), [(0, "::/0".to_owned(), Shadow::Inside)]);
    }

    proptest! {
        #[test]
        fn an_order_that_has_followed_is_one_that_is_made_anew(
            before in prop::collection::btree_map((28_u8..=32, 0_u32..32), 0_usize..4, 0..20),
            after in prop::collection::btree_map((28_u8..=32, 0_u32..32), 0_usize..4, 0..20),
        ) {
            let users = |claims: &std::collections::BTreeMap<(u8, u32), usize>| {
                let mut sources = vec![std::collections::BTreeSet::new(); 4];
                let mut taken = std::collections::BTreeSet::new();
                for ((len, host), user) in claims {
                    let prefix = Prefix::masked(std::net::Ipv4Addr::from_bits(*host).into(), *len);
                    if taken.insert(prefix) {
                        sources[*user].insert(prefix);
                    }
                }
                // Users without sources are left out.
                let user = |(n, of): (usize, &std::collections::BTreeSet<Prefix>)| {
                    (!of.is_empty()).then(|| User::new(format!("u{n}"), None, of.iter().copied().collect(), None))
                };
                let users = sources.iter().enumerate().filter_map(user).collect();
                Users::new(users, Vec::new(), &Users::default()).unwrap()
            };
            let (before, after) = (users(&before), users(&after));
            let mut followed = ShadowOrder::of(&before);
            followed.follow(&before, &after);
            let named = |order: &ShadowOrder| -> Vec<(Prefix, String)> {
                let name = |number: u32| order.owners.iter().find(|(_, other)| **other == number).unwrap().0.clone();
                order.sorted.iter().map(|(prefix, owner)| (*prefix, name(*owner))).collect()
            };
            prop_assert_eq!(named(&followed), named(&ShadowOrder::of(&after)));
        }

        /// Among 32 addresses, a prefix is shadowed exactly if every address has the same user without it.
        #[test]
        fn a_prefix_without_which_every_address_has_the_same_user_is_found_and_no_other(
            claims in prop::collection::btree_map((27_u8..=32, 0_u32..32), 0_usize..3, 1..12),
        ) {
            let mut sources = vec![Vec::new(); 3];
            let claims: std::collections::BTreeMap<Prefix, usize> = claims
                .into_iter()
                .map(|((len, host), user)| (Prefix::masked(std::net::Ipv4Addr::from_bits(host).into(), len), user))
                .collect();
            for (prefix, user) in &claims {
                sources[*user].push(*prefix);
            }
            let whole = users(&sources.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let answers = |users: &Users| -> Vec<Option<String>> {
                let address = |host| Prefix::masked(std::net::Ipv4Addr::from_bits(host).into(), 32);
                (0..32).map(|host| users.of(&address(host)).map(|user| user.name().to_owned())).collect()
            };
            let shadowed = ShadowOrder::of(&whole).shadows();
            for (user, of) in sources.iter().enumerate() {
                for prefix in of {
                    let mut without = sources.clone();
                    without[user].retain(|other| other != prefix);
                    let without = users(&without.iter().map(Vec::as_slice).collect::<Vec<_>>());
                    let is_found = shadowed.iter().any(|(owner, other, _)| (*owner as usize, other) == (user, prefix));
                    let changes_nothing = answers(&without) == answers(&whole);
                    // A prefix that its own user's and others' prefixes cover only together is not looked for.
                    prop_assert!(!is_found || changes_nothing, "{prefix}");
                    let own_inside = of.iter().any(|other| other != prefix && prefix.covers(other));
                    prop_assert!(is_found || !changes_nothing || own_inside, "{prefix}");
                }
            }
        }
    }
}
