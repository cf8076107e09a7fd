//! The indices of services and users in the kernel's tables.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap, HashSet},
};

/// Names by index. A name keeps its index from one policy to the next, and with it what was spent there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    names: Vec<Option<String>>,
    index: HashMap<String, usize>,
    /// For each free index that once had a name, how many policies it has been free. An index that is missing here never had a name.
    free_for: HashMap<usize, u32>,
}

/// A hash of a name, kept in the kernel's policy so that the next daemon finds the name again: 64-bit FNV-1a. Never 0, which marks no name.
fn mark(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.max(1)
}

/// Stands for a name whose mark is in the kernel but which is not known any more.
const FORGOTTEN: &str = "";

impl Places {
    /// Names with their known indices. Of two names with one index, the first gets it.
    pub fn known<'n>(names: impl Iterator<Item = (&'n str, usize)>) -> Self {
        let mut places = Self::default();
        for (name, at) in names {
            if places.names.len() <= at {
                places.names.resize(at + 1, None);
            }
            if places.names[at].is_none() {
                places.names[at] = Some(name.to_owned());
                places.index.insert(name.to_owned(), at);
            }
        }
        places
    }

    /// Recovers the indices from the marks that another daemon left. A name without a mark may be found by `otherwise`, unless its index has a name
    /// that is known by its mark. Indices whose name is not known any more count as taken.
    pub fn recovered<'n>(
        names: impl Iterator<Item = &'n str>,
        marks: &[u64],
        otherwise: impl Fn(&str) -> Option<usize>,
    ) -> Self {
        // Sorted, so that of two names that claim one index the same one always gets it.
        let names: BTreeSet<&str> = names.collect();
        let by_mark: HashMap<u64, usize> =
            marks.iter().enumerate().filter(|(_, mark)| **mark != 0).map(|(at, mark)| (*mark, at)).collect();
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for name in names {
            match by_mark.get(&mark(name)) {
                Some(at) => known.push((name, *at)),
                None => unknown.push(name),
            }
        }
        // Names without a mark come last: of two names with one index, the first gets it.
        known.extend(unknown.into_iter().filter_map(|name| Some((name, otherwise(name)?))));
        let mut places = Self::known(known.into_iter());
        places.names.resize(places.names.len().max(marks.len()), None);
        for (name, mark) in places.names.iter_mut().zip(marks) {
            if *mark != 0 && name.is_none() {
                *name = Some(FORGOTTEN.to_owned());
            }
        }
        places
    }

    /// Writes the mark of each name at its index.
    pub fn write(&self, marks: &mut [u64]) {
        for (place, name) in marks.iter_mut().zip(&self.names) {
            *place = name.as_deref().map_or(0, mark);
        }
    }

    /// The indices of these names in the next policy, whatever their order. A new name gets an index that never had a name, if there is one below
    /// `limit`, or else the one that has been free for longest: while one policy replaces the other an index must not belong to two names, and counts
    /// at an index must not pass to another name.
    pub fn after<'n>(before: &Self, names: impl Iterator<Item = &'n str>, limit: usize) -> Self {
        let wanted: HashSet<&str> = names.collect();
        let stays = |old: &Option<String>| old.clone().filter(|old| wanted.contains(old.as_str()));
        let mut places: Vec<Option<String>> = before.names.iter().map(stays).collect();
        let mut index = HashMap::with_capacity(wanted.len());
        index.extend(places.iter().enumerate().filter_map(|(at, name)| Some((name.clone()?, at))));
        let mut free_for: HashMap<usize, u32> =
            before.free_for.iter().map(|(at, policies)| (*at, policies.saturating_add(1))).collect();
        free_for.extend(before.iter().map(|(at, _)| (at, 0)));
        let is_free = |at: &usize| places.get(*at).is_none_or(Option::is_none);
        let mut free: Vec<usize> = (0..limit).filter(is_free).collect();
        // Of two indices that have been free equally long, the first is used; the sort is stable.
        free.sort_by_key(|at| Reverse(free_for.get(at).map_or(u32::MAX, |policies| *policies)));
        let mut free = free.into_iter();
        let mut new: Vec<&str> = wanted.into_iter().filter(|name| !index.contains_key(*name)).collect();
        new.sort_unstable();
        for name in new {
            // Never happens: a policy has at most as many names as there are indices.
            let Some(at) = free.next() else { break };
            if places.len() <= at {
                places.resize(at + 1, None);
            }
            places[at] = Some(name.to_owned());
            index.insert(name.to_owned(), at);
        }
        free_for.retain(|at, _| places.get(*at).is_none_or(Option::is_none));
        Self { names: places, index, free_for }
    }

    /// The index of a name.
    pub fn of(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// The name of a service by its number: one more than its index; 0 stands for packets of no service.
    pub fn of_number(&self, number: u32) -> Option<&str> {
        let place = number.checked_sub(1)? as usize;
        self.iter().find(|(at, _)| *at == place).map(|(_, name)| name)
    }

    /// All names with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &str)> {
        self.names.iter().enumerate().filter_map(|(index, name)| Some((index, name.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(before: &Places, names: &[&str]) -> Places {
        Places::after(before, names.iter().copied(), 5)
    }

    #[test]
    fn a_number_is_one_more_than_a_place_and_nobodys_where_nobody_is() {
        let places = after(&after(&Places::default(), &["a", "b", "c"]), &["a", "c"]);
        let [a, c] = ["a", "c"].map(|name| places.of(name).unwrap() as u32);
        assert_eq!((places.of_number(a + 1), places.of_number(c + 1)), (Some("a"), Some("c")));
        let others = (0..9).filter(|number| ![a + 1, c + 1].contains(number));
        assert_eq!(others.filter_map(|number| places.of_number(number)).count(), 0);
    }

    #[test]
    fn a_place_that_a_name_had_is_the_last_that_another_gets() {
        let rows =
            [vec!["a", "b"], vec!["b"], vec!["b", "c"], vec!["c"], vec!["c", "d"], vec!["c", "d", "e"]];
        let mut places = Places::default();
        for names in rows {
            places = after(&places, &names);
        }
        assert_eq!(places.iter().collect::<Vec<_>>(), [(2, "c"), (3, "d"), (4, "e")]);
        // Every index has had a name, so the one that has been free for longest is used first.
        let next = after(&places, &["c", "d", "e", "f"]);
        assert_eq!((next.of("f"), after(&next, &["c", "d", "e", "f", "g"]).of("g")), (Some(0), Some(1)));
    }

    #[test]
    fn a_name_keeps_its_place_whatever_comes_and_goes() {
        let first = after(&Places::default(), &["a", "b", "c"]);
        let second = after(&first, &["d", "c", "a", "e"]);
        assert_eq!(second.iter().collect::<Vec<_>>(), [(0, "a"), (2, "c"), (3, "d"), (4, "e")]);
    }

    #[test]
    fn names_that_are_known_to_have_a_place_keep_it_and_none_has_two_names() {
        let known = Places::known([("c", 2), ("a", 0), ("b", 2)].into_iter());
        assert_eq!(known.iter().collect::<Vec<_>>(), [(0, "a"), (2, "c")]);
        assert_eq!((known.of("b"), known.of("c")), (None, Some(2)));
        assert_eq!(
            after(&known, &["a", "b", "c"]).iter().collect::<Vec<_>>(),
            [(0, "a"), (1, "b"), (2, "c")]
        );
    }

    #[test]
    fn names_are_found_again_by_what_they_left_and_others_where_nobody_is_known() {
        let mut marks = [0; 6];
        after(&Places::default(), &["a", "b", "c", "d"]).write(&mut marks);
        // "x" asks for the index of "b", which is still named, and "y" for that of "d", which is not.
        let otherwise = |name: &str| {
            [("a", 3), ("x", 1), ("y", 3)].into_iter().find_map(|(n, at)| (n == name).then_some(at))
        };
        let found = Places::recovered(["y", "x", "b", "a"].into_iter(), &marks, otherwise);
        assert_eq!(
            [found.of("a"), found.of("b"), found.of("y"), found.of("x")],
            [Some(0), Some(1), Some(3), None]
        );
        // A new name gets an index that never had a name, rather than one whose name is forgotten.
        let next = Places::after(&found, ["a", "b", "x", "y"].into_iter(), 6);
        assert_eq!((next.of("x"), next.of("y")), (Some(4), Some(3)));
        let all = Places::after(&found, ["a", "b", "x", "y", "z", "0"].into_iter(), 6);
        assert_eq!((all.of("0"), all.of("x"), all.of("z")), (Some(4), Some(5), Some(2)));
    }

    #[test]
    fn a_place_that_has_just_become_free_is_the_last_to_be_used_again() {
        let first = after(&Places::default(), &["a", "b", "c"]);
        let second = after(&first, &["d", "e", "f", "c"]);
        assert_eq!(second.iter().collect::<Vec<_>>(), [(0, "f"), (2, "c"), (3, "d"), (4, "e")]);
    }
}
