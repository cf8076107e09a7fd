//! Compiles the kernel programs of the benchmark, so that the measuring program has them inside, and the limiter with the feature `trace`, so that
//! tests can load it.

#[path = "../ratelimit-ebpf/object.rs"]
mod object;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    object::made_of(&[
        "tests/rig",
        "ratelimit-ebpf",
        "ratelimit-common/src",
        "ratelimit-common/Cargo.toml",
        "Cargo.toml",
    ])?;
    object::build("ratelimit-rig", &[], "rig")?;
    object::build("ratelimit-ebpf", &["trace"], "traced")
}
