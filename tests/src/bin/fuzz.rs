//! The fuzzer behind `cargo xtask fuzz`: libFuzzer around one of the targets of `ratelimit_tests::fuzz`, named by `FUZZ_TARGET`.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ratelimit_tests::fuzz::Target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    Target::named(&name).unwrap_or_else(|| panic!("FUZZ_TARGET={name:?} is none; cargo xtask fuzz names one"))
});

fuzz_target!(|bytes: &[u8]| TARGET.run(bytes));
