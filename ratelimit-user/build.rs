//! Compiles the kernel program, so that `ratelimit` is one file with the object inside.

#[path = "../ratelimit-ebpf/object.rs"]
mod object;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    object::build(
        "ratelimit-ebpf",
        &["ratelimit-ebpf", "ratelimit-common/src", "ratelimit-common/Cargo.toml", "Cargo.toml"],
    )
}
