//! The common beginning and end of two texts.

/// Bytes compared at a time as long as they are equal.
const STRIDE: usize = 4096;

/// How many bytes two texts have in common at the beginning and, behind that, at the end. Characters are not cut.
pub(crate) fn overlap(one: &str, other: &str) -> (usize, usize) {
    let (a, b) = (one.as_bytes(), other.as_bytes());
    let equal =
        a.chunks_exact(STRIDE).zip(b.chunks_exact(STRIDE)).take_while(|(a, b)| a == b).count() * STRIDE;
    let mut head = equal + a[equal..].iter().zip(&b[equal..]).take_while(|(a, b)| a == b).count();
    // The bytes before are equal, so a position between characters of one text is also one of the other.
    while !one.is_char_boundary(head) || !other.is_char_boundary(head) {
        head -= 1;
    }
    let (a, b) = (&a[head..], &b[head..]);
    let equal =
        a.rchunks_exact(STRIDE).zip(b.rchunks_exact(STRIDE)).take_while(|(a, b)| a == b).count() * STRIDE;
    let (left_a, left_b) = (&a[..a.len() - equal], &b[..b.len() - equal]);
    let mut tail = equal + left_a.iter().rev().zip(left_b.iter().rev()).take_while(|(a, b)| a == b).count();
    while !one.is_char_boundary(one.len() - tail) || !other.is_char_boundary(other.len() - tail) {
        tail -= 1;
    }
    (head, tail)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_that_begin_or_end_alike_are_not_cut() {
        // ä is c3 a4, ö is c3 b6, and Ŵ ends with the byte that ô ends with.
        assert_eq!(overlap("xäy", "xöy"), (1, 1));
        assert_eq!(overlap("x\u{174}", "y\u{f4}"), (0, 0));
        assert_eq!(overlap("aaa", "aa"), (2, 0));
        assert_eq!(overlap("", "a"), (0, 0));
    }

    proptest! {
        #[test]
        fn both_texts_are_the_same_at_both_ends_and_differ_in_between(
            head in "[aä]{0,10}", one in "[aäb]{0,3}", other in "[aäb]{0,3}", tail in "[aä]{0,10}", times in 0_usize..2000,
        ) {
            let long = "aä".repeat(times);
            let (one, other) = (format!("{long}{head}{one}{tail}{long}"), format!("{long}{head}{other}{tail}{long}"));
            let (head, tail) = overlap(&one, &other);
            prop_assert!(head + tail <= one.len().min(other.len()));
            prop_assert_eq!(&one[..head], &other[..head]);
            prop_assert_eq!(&one[one.len() - tail..], &other[other.len() - tail..]);
            let (a, b) = (&one[head..one.len() - tail], &other[head..other.len() - tail]);
            if !a.is_empty() && !b.is_empty() {
                prop_assert_ne!(a.chars().next(), b.chars().next());
                prop_assert_ne!(a.chars().next_back(), b.chars().next_back());
            }
        }
    }
}
