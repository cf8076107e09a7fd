//! Which index each service and each user has in the kernel's tables.

/// Names by index. A name keeps its index from one policy to the next, and with it what was spent there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places(Vec<Option<String>>);

impl Places {
    /// The places of these names, after those of an earlier policy.
    pub fn after<'n>(before: &Self, names: impl Iterator<Item = &'n str> + Clone) -> Self {
        let kept = |old: &Option<String>| old.clone().filter(|old| names.clone().any(|name| name == old));
        let mut places: Vec<Option<String>> = before.0.iter().map(kept).collect();
        let mut free = 0;
        for name in names {
            if places.iter().flatten().any(|taken| taken == name) {
                continue;
            }
            while places.get(free).is_some_and(Option::is_some) {
                free += 1;
            }
            match places.get_mut(free) {
                Some(place) => *place = Some(name.to_owned()),
                None => places.push(Some(name.to_owned())),
            }
        }
        Self(places)
    }

    /// The index of a name.
    pub fn of(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|place| place.as_deref() == Some(name))
    }

    /// All names with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &str)> {
        self.0.iter().enumerate().filter_map(|(index, name)| Some((index, name.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(before: &Places, names: &[&str]) -> Places {
        Places::after(before, names.iter().copied())
    }

    #[test]
    fn a_name_keeps_its_place_whatever_comes_and_goes() {
        let first = after(&Places::default(), &["a", "b", "c"]);
        let second = after(&first, &["d", "c", "a", "e"]);
        assert_eq!(second.iter().collect::<Vec<_>>(), [(0, "a"), (1, "d"), (2, "c"), (3, "e")]);
    }

    #[test]
    fn a_place_that_is_free_is_used_again() {
        let first = after(&Places::default(), &["a", "b"]);
        let second = after(&first, &["b"]);
        assert_eq!(second.iter().collect::<Vec<_>>(), [(1, "b")]);
        assert_eq!(after(&second, &["b", "c"]).of("c"), Some(0));
    }
}
