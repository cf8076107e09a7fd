//! Something that is taken out of its place for as long as it is worked with, because the work looks at the rest of the house too.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Why there is no result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoResult {
    /// There is nothing in that place.
    Nothing,
    /// The work panicked, with these words. What it worked with is back in its place, as far as the work had got.
    Panicked(String),
}

/// Works with what is in a place of a house, and puts it back whatever happens: what is not put back is gone until the daemon starts again.
pub(super) fn lent<H, T, R>(
    house: &mut H,
    place: impl Fn(&mut H) -> &mut Option<T>,
    work: impl FnOnce(&mut T, &H) -> R,
) -> Result<R, NoResult> {
    let Some(mut thing) = place(house).take() else { return Err(NoResult::Nothing) };
    let result = catch_unwind(AssertUnwindSafe(|| work(&mut thing, house)));
    *place(house) = Some(thing);
    result.map_err(|panic| NoResult::Panicked(words(&*panic)))
}

/// What a panic said.
pub(super) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct House {
        cat: Option<u32>,
        doors: u32,
    }

    fn cat(house: &mut House) -> &mut Option<u32> {
        &mut house.cat
    }

    #[test]
    fn what_was_taken_out_is_back_in_its_place_also_after_a_panic() {
        let mut house = House { cat: Some(1), doors: 3 };
        let counted = lent(&mut house, cat, |cat, house| {
            *cat += 1;
            *cat + house.doors
        });
        assert_eq!((counted, house.cat), (Ok(5), Some(2)));
        let failed: Result<(), _> = lent(&mut house, cat, |cat, house| {
            *cat += 1;
            panic!("{} doors", house.doors)
        });
        assert_eq!((failed, house.cat), (Err(NoResult::Panicked("3 doors".into())), Some(3)));
        house.cat = None;
        assert_eq!(lent(&mut house, cat, |_, _| ()), Err(NoResult::Nothing));
    }
}
