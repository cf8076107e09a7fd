//! The prefixes of a user, in chunks that two versions of a policy share where they are equal.
//!
//! A user can have a hundred thousand prefixes, and the next version of the policy may change one. Chunks that both versions have are one
//! piece of memory, known to be equal without a look inside.

use std::{collections::HashSet, sync::Arc};

use super::Prefix;

/// Some prefixes in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk(Arc<[Prefix]>);

impl Chunk {
    /// A chunk of prefixes that are given in any order.
    pub fn new(mut prefixes: Vec<Prefix>) -> Self {
        prefixes.sort_unstable();
        Self(prefixes.into())
    }

    /// All prefixes, in order.
    pub fn prefixes(&self) -> &[Prefix] {
        &self.0
    }

    /// The address of the chunk's memory. Chunks with equal addresses share their memory, so their prefixes are equal.
    pub(super) fn identity(&self) -> *const Prefix {
        self.0.as_ptr()
    }
}

/// The prefixes of one user, in chunks. Two sets are equal if their prefixes are, however they are divided into chunks.
#[derive(Clone, Debug, Default)]
pub struct Sources(Vec<Chunk>);

/// The difference between two sets of prefixes, each part in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Prefixes only in the first set.
    pub gone: Vec<Prefix>,
    /// Prefixes only in the second set.
    pub come: Vec<Prefix>,
}

impl Sources {
    /// The prefixes of chunks in any order; empty chunks are left out.
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

    /// How many prefixes there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|chunk| chunk.prefixes().len()).sum()
    }

    /// Whether there are no prefixes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The prefixes to remove and to add to turn this set into `after`.
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

/// The prefixes to remove and to add to turn `before` into `after`. Chunks that both share are not read.
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
