//! What occurs most often in a stream, in bounded memory: the space-saving algorithm. A new value takes the place of the rarest and its count; a count is too
//! large by at most the rarest one's.

/// Values with their counts.
#[derive(Clone, Debug)]
pub(super) struct Frequent<T> {
    room: usize,
    counts: Vec<(T, u64)>,
}

impl<T: PartialEq + Clone> Frequent<T> {
    /// Room for so many values.
    pub(super) fn new(room: usize) -> Self {
        Self { room, counts: Vec::new() }
    }

    /// Counts one occurrence with a weight.
    pub(super) fn see(&mut self, value: &T, weight: u64) {
        if let Some((_, count)) = self.counts.iter_mut().find(|(known, _)| known == value) {
            *count += weight;
        } else if self.counts.len() < self.room {
            self.counts.push((value.clone(), weight));
        } else if let Some((rarest, count)) = self.counts.iter_mut().min_by_key(|(_, count)| *count) {
            *rarest = value.clone();
            *count += weight;
        }
    }

    /// The most frequent, most frequent first.
    pub(super) fn top(&self, most: usize) -> Vec<(T, u64)> {
        let mut counts = self.counts.clone();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts.truncate(most);
        counts
    }

    /// How many different values are known; `room` means at least so many.
    pub(super) fn known(&self) -> usize {
        self.counts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_of_many_values_are_found_in_the_room_there_is() {
        let mut frequent = Frequent::new(16);
        for number in 0..10_000_u32 {
            frequent.see(&(number + 100), 1);
            if number % 4 == 0 {
                frequent.see(&7, 1);
            }
            if number % 5 == 0 {
                frequent.see(&8, 1);
            }
        }
        let top: Vec<u32> = frequent.top(2).into_iter().map(|(value, _)| value).collect();
        assert_eq!((top, frequent.known()), (vec![7, 8], 16));
        let (_, most) = frequent.top(1)[0];
        assert!((2_500..2_500 + 14_500 / 16).contains(&most), "{most}");
    }
}
