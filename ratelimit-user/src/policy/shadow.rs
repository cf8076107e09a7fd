//! Prefixes of users, or of services, that change nothing, because others around them or inside them answer first.

use std::collections::HashMap;

use super::{Prefix, User, Users};

/// Why a prefix changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shadow {
    /// A wider one is the same owner's, and nobody else's is in between.
    Around(Prefix),
    /// Longer ones of others have every address of it.
    Inside,
}

/// One prefix, and what has been found so far of those inside it.
struct Frame {
    owner: usize,
    source: usize,
    prefix: Prefix,
    /// Addresses that prefixes of others have, in parts of 2^128: each counted once, in the widest of them.
    taken: Share,
}

/// A part of a prefix, as a number of its 2^-n pieces; exact, because each is a power of two and together they are at most one.
#[derive(Clone, Copy, Default)]
struct Share(u128);

impl Share {
    const WHOLE: u128 = 1 << 127;

    /// What a prefix is of one around it. Prefixes of more than 127 bits less do not exist in practice, and count as nothing.
    fn of(inner: &Prefix, outer: &Prefix) -> Self {
        Self(Self::WHOLE.checked_shr(u32::from(inner.len() - outer.len())).unwrap_or(0))
    }
}

/// A prefix, whose it is, and its place among its owner's.
pub(super) type Claim = (Prefix, usize, usize);

/// Every prefix of a user that changes nothing: the user's place, the place among its sources, and why.
pub fn shadows(users: &Users) -> Vec<(usize, usize, Shadow)> {
    let sources = |(user, one): (usize, &User)| -> Vec<Claim> {
        one.sources().iter().enumerate().map(|(source, prefix)| (*prefix, user, source)).collect()
    };
    shadows_of(users.iter().enumerate().flat_map(sources).collect())
}

/// Every prefix that changes nothing: its owner, its place there, and why. Where two have the same, it is the later owner's.
///
/// One pass: in sorted order a prefix comes before everything inside it, so the prefixes around the current one are a stack.
pub(super) fn shadows_of(mut all: Vec<Claim>) -> Vec<(usize, usize, Shadow)> {
    all.sort_unstable();
    let mut found: HashMap<(usize, usize), Shadow> = HashMap::new();
    let mut around: Vec<Frame> = Vec::new();
    for (prefix, owner, source) in all {
        while around.last().is_some_and(|wider| !wider.prefix.covers(&prefix)) {
            close(around.pop(), &mut found);
        }
        if let Some(wider) = around.last_mut() {
            if wider.owner == owner {
                found.insert((owner, source), Shadow::Around(wider.prefix));
            } else {
                wider.taken.0 += Share::of(&prefix, &wider.prefix).0;
            }
        }
        around.push(Frame { owner, source, prefix, taken: Share::default() });
    }
    while let Some(frame) = around.pop() {
        close(Some(frame), &mut found);
    }
    let mut shadows: Vec<_> = found.into_iter().map(|((owner, source), why)| (owner, source, why)).collect();
    shadows.sort_unstable_by_key(|(owner, source, _)| (*owner, *source));
    shadows
}

fn close(frame: Option<Frame>, found: &mut HashMap<(usize, usize), Shadow>) {
    if let Some(frame) = frame.filter(|frame| frame.taken.0 == Share::WHOLE) {
        found.insert((frame.owner, frame.source), Shadow::Inside);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn users(sources: &[&[Prefix]]) -> Users {
        let user =
            |(n, sources): (usize, &&[Prefix])| User::new(format!("u{n}"), None, sources.to_vec(), None);
        Users::new(sources.iter().enumerate().map(user).collect(), Vec::new()).unwrap()
    }

    fn found(sources: &[&[&str]]) -> Vec<(usize, usize, Shadow)> {
        let parsed: Vec<Vec<Prefix>> =
            sources.iter().map(|of| of.iter().map(|text| text.parse().unwrap()).collect()).collect();
        shadows(&users(&parsed.iter().map(Vec::as_slice).collect::<Vec<_>>()))
    }

    #[test]
    fn a_prefix_inside_one_of_the_same_user_changes_nothing_unless_anothers_is_in_between() {
        let wide = "10.0.0.0/8".parse().unwrap();
        assert_eq!(found(&[&["10.1.0.0/16", "10.0.0.0/8"]]), [(0, 0, Shadow::Around(wide))]);
        assert_eq!(found(&[&["10.0.0.0/8", "10.1.2.0/24"], &["10.1.0.0/16"]]), []);
        assert_eq!(found(&[&["10.0.0.0/8", "11.0.0.0/8", "::/0"]]), []);
    }

    #[test]
    fn a_prefix_that_longer_ones_of_others_fill_changes_nothing() {
        assert_eq!(
            found(&[&["10.0.0.0/24"], &["10.0.0.0/25"], &["10.0.0.128/25"]]),
            [(0, 0, Shadow::Inside)]
        );
        assert_eq!(found(&[&["10.0.0.0/24"], &["10.0.0.0/25", "10.0.0.192/26"]]), [], "a quarter is left");
        assert_eq!(
            found(&[
                &["10.0.0.0/24"],
                &["10.0.0.0/25", "10.0.0.192/26"],
                &["10.0.0.128/26", "10.0.0.128/32"]
            ]),
            [(0, 0, Shadow::Inside), (2, 1, Shadow::Around("10.0.0.128/26".parse().unwrap()))],
            "what is inside what is inside counts once"
        );
        assert_eq!(found(&[&["::/0"], &["::/1"], &["8000::/1"]]), [(0, 0, Shadow::Inside)]);
    }

    proptest! {
        /// In a world of 32 addresses, a prefix is shadowed exactly if nobody's answer changes without it.
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
            let shadowed = shadows(&whole);
            for (user, of) in sources.iter().enumerate() {
                for (source, prefix) in of.iter().enumerate() {
                    let mut without = sources.clone();
                    without[user].retain(|other| other != prefix);
                    let without = users(&without.iter().map(Vec::as_slice).collect::<Vec<_>>());
                    let is_found = shadowed.iter().any(|(u, s, _)| (*u, *s) == (user, source));
                    let changes_nothing = answers(&without) == answers(&whole);
                    // A prefix that is filled by its own user's and others' together is not looked for.
                    prop_assert!(!is_found || changes_nothing, "{prefix}");
                    let own_inside = of.iter().any(|other| other != prefix && prefix.covers(other));
                    prop_assert!(is_found || !changes_nothing || own_inside, "{prefix}");
                }
            }
        }
    }
}
