//! Compiles the kernel program, so that `ratelimit` is one file with the object inside, and names the build by its sources.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

#[path = "../ratelimit-ebpf/object.rs"]
mod object;

/// What the binary is made of, from the workspace on.
const SOURCES: [&str; 5] = [
    "ratelimit-ebpf",
    "ratelimit-common/src",
    "ratelimit-common/Cargo.toml",
    "ratelimit-user/src",
    "Cargo.toml",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    object::made_of(&SOURCES)?;
    object::build("ratelimit-ebpf", &[], "plain")?;
    if env::var_os("CARGO_FEATURE_TRACE").is_some() {
        object::build("ratelimit-ebpf", &["trace"], "traced")?;
    }
    let mut files = Vec::new();
    for source in SOURCES {
        collect(&Path::new("..").join(source), &mut files)?;
    }
    files.sort();
    // FNV-1a: the same sources have the same name on every machine, with or without a repository around them.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        for byte in file.to_string_lossy().bytes().chain(fs::read(&file)?) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    println!("cargo:rustc-env=RATELIMIT_SOURCES={:08x}", (hash ^ (hash >> 32)) as u32);
    Ok(())
}

/// All files under a path, which may be one itself.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(&entry?.path(), files)?;
        }
    } else {
        files.push(path.to_owned());
    }
    Ok(())
}
