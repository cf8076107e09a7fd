//! Compiles the kernel programs of the benchmark, so that the measuring program has them inside.

#[path = "../ratelimit-ebpf/object.rs"]
mod object;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    object::build("ratelimit-rig", &["tests/rig", "ratelimit-ebpf/object.rs", "Cargo.toml"])
}
