//! The prefixes of a user, in chunks that two versions of a policy share where they say the same.
//!
//! A policy can have a hundred thousand of them, and the next version of it differs in one. What both have in common is one
//! piece of memory, known to be equal without a look inside.

use std::{collections::HashSet, sync::Arc};

use super::Prefix;

/// Some prefixes in order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk(Arc<[Prefix]>);

impl Chunk {
    /// From prefixes in any order.
    pub fn new(mut prefixes: Vec<Prefix>) -> Self {
        prefixes.sort_unstable();
        Self(prefixes.into())
    }

    /// All prefixes, in order.
    pub fn prefixes(&self) -> &[Prefix] {
        &self.0
    }

    /// An address that is equal for chunks that share their memory, whose prefixes are therefore equal.
    pub(super) fn identity(&self) -> *const Prefix {
        self.0.as_ptr()
    }
}

/// The prefixes of one user. Equal to others with the same prefixes, however they are cut.
#[derive(Clone, Debug, Default)]
pub struct Sources(Vec<Chunk>);

/// What lies between two sets of prefixes, both in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Only in the first.
    pub gone: Vec<Prefix>,
    /// Only in the second.
    pub come: Vec<Prefix>,
}

impl Sources {
    /// From chunks in any order.
    pub fn new(mut chunks: Vec<Chunk>) -> Self {
        chunks.retain(|chunk| !chunk.prefixes().is_empty());
        Self(chunks)
    }

    /// The chunks that the prefixes are kept in.
    pub fn chunks(&self) -> &[Chunk] {
        &self.0
    }

    /// All prefixes, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Prefix> {
        self.0.iter().flat_map(Chunk::prefixes)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|chunk| chunk.prefixes().len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What has to go and to come to make `after` of these.
    pub fn difference(&self, after: &Self) -> Difference {
        difference(&self.0, &after.0)
    }
}

impl FromIterator<Prefix> for Sources {
    fn from_iter<I: IntoIterator<Item = Prefix>>(prefixes: I) -> Self {
        Self::new(vec![Chunk::new(prefixes.into_iter().collect())])
    }
}

impl PartialEq for Sources {
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, other): (&Chunk, &Chunk)| one.identity() == other.identity() || one == other;
        let alike = self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same);
        alike || self.difference(other) == Difference::default()
    }
}

impl Eq for Sources {}

/// What has to go and to come to make the second of the first. Chunks that both have are not looked into.
pub(super) fn difference<'c>(
    before: impl IntoIterator<Item = &'c Chunk> + Clone,
    after: impl IntoIterator<Item = &'c Chunk> + Clone,
) -> Difference {
    let identities = |chunks: &mut dyn Iterator<Item = &'c Chunk>| -> HashSet<*const Prefix> {
        chunks.map(Chunk::identity).collect()
    };
    let old = identities(&mut before.clone().into_iter());
    let new = identities(&mut after.clone().into_iter());
    let unshared = |chunks: &mut dyn Iterator<Item = &'c Chunk>, with: &HashSet<*const Prefix>| {
        let mut prefixes: Vec<Prefix> = chunks
            .filter(|chunk| !with.contains(&chunk.identity()))
            .flat_map(Chunk::prefixes)
            .copied()
            .collect();
        prefixes.sort();
        prefixes
    };
    let (old, new) = (unshared(&mut before.into_iter(), &new), unshared(&mut after.into_iter(), &old));
    let only = |these: &[Prefix], those: &[Prefix]| -> Vec<Prefix> {
        let mut those = those.iter().peekable();
        let absent = |prefix: &&Prefix| {
            while those.next_if(|other| other < prefix).is_some() {}
            those.peek() != Some(prefix)
        };
        these.iter().filter(absent).copied().collect()
    };
    Difference { gone: only(&old, &new), come: only(&new, &old) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(host: u8) -> Prefix {
        Prefix::masked([10, 0, 0, host].into(), 32)
    }

    fn sources(chunks: &[Vec<u8>]) -> Sources {
        let chunk = |hosts: &Vec<u8>| Chunk::new(hosts.iter().copied().map(prefix).collect());
        Sources::new(chunks.iter().map(chunk).collect())
    }

    fn hosts(sources: &Sources) -> std::collections::BTreeSet<Prefix> {
        sources.iter().copied().collect()
    }

    proptest! {
        #[test]
        fn a_difference_is_that_of_the_sets_whatever_is_shared(
            shared in prop::collection::btree_set(0_u8..40, 0..10),
            before in prop::collection::btree_set(40_u8..60, 0..10),
            after in prop::collection::btree_set(40_u8..60, 0..10),
            cut in 0_usize..10,
        ) {
            let vec = |set: &std::collections::BTreeSet<u8>| set.iter().copied().collect::<Vec<_>>();
            let common = sources(&[vec(&shared)]);
            let with = |own: Vec<u8>| {
                let (left, right) = own.split_at(cut.min(own.len()));
                let own = sources(&[left.to_vec(), right.to_vec()]);
                Sources::new([own.chunks(), common.chunks()].concat())
            };
            let (old, new) = (with(vec(&before)), with(vec(&after)));
            let difference = old.difference(&new);
            let (old_set, new_set) = (hosts(&old), hosts(&new));
            prop_assert_eq!(difference.gone, old_set.difference(&new_set).copied().collect::<Vec<_>>());
            prop_assert_eq!(difference.come, new_set.difference(&old_set).copied().collect::<Vec<_>>());
            prop_assert_eq!(old == new, old_set == new_set);
        }
    }
}
