//! Runs work in which a panic must not end anything else.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Runs work and returns its result, or the message of its panic. Values that the work was changing keep their partial changes.
pub(in crate::daemon) fn caught<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| words(&*panic))
}

/// Returns the message of a panic.
pub(in crate::daemon) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_in_its_words_and_leaves_what_was_worked_with() {
        let mut doors = 3;
        assert_eq!(caught(|| doors + 1), Ok(4));
        let failed: Result<(), _> = caught(|| {
            doors += 1;
            panic!("{doors} doors")
        });
        assert_eq!((failed, doors), (Err("4 doors".into()), 4));
    }
}
