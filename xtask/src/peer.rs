//! The peers that `cargo xtask bench --requests` compares with: fetched for this checkout, never vendored, never installed as a service.

use std::path::Path;

use anyhow::Result;

use crate::setup::{self, DebianFile, Install, Need, Step, quoted};

/// A program for comparisons or tests that only this checkout has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) executable: &'static str,
    pub(crate) source: Source,
}

/// The source of a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Debian(DebianFile),
    /// The arguments of `cargo install`.
    Cargo(&'static str),
}

pub(crate) const NGINX: Need = Need::Peer(Peer {
    executable: "nginx",
    source: Source::Debian(DebianFile { package: "nginx", path: "usr/sbin/nginx" }),
});
const THROTTLECRAB: Need = Need::Peer(Peer {
    executable: "throttlecrab-server",
    source: Source::Cargo("throttlecrab-server --version 0.4.40"),
});
const LIMITADOR: Need =
    Need::Peer(Peer { executable: "limitador-rls", source: Source::Cargo("--path tests/peers/limitador") });
/// The compiler of protocol buffers. Without it throttlecrab is built without gRPC, and says so only when it is started.
const PROTOC: Need = Need::Executable { name: "protoc", package: "protobuf-compiler" };
const REDIS_BENCHMARK: Need = Need::Executable { name: "redis-benchmark", package: "redis-tools" };
const WRK: Need = Need::Executable { name: "wrk", package: "wrk" };
const H2LOAD: Need = Need::Executable { name: "h2load", package: "nghttp2-client" };

/// The needs of each part of the comparison.
const PARTS: [(&str, &[Need]); 7] = [
    ("resp", &[REDIS_BENCHMARK, Need::RedisServer, PROTOC, THROTTLECRAB]),
    ("http", &[WRK, NGINX, PROTOC, THROTTLECRAB]),
    ("grpc", &[H2LOAD, PROTOC, THROTTLECRAB, LIMITADOR]),
    ("library", &[]),
    ("latency", &[REDIS_BENCHMARK, PROTOC, THROTTLECRAB]),
    ("lease", &[REDIS_BENCHMARK, Need::RedisServer]),
    ("memory", &[]),
];

/// Installs the needs of the chosen parts; of all parts if none is named. A need that cannot be installed is reported and left out: the
/// comparison with the other peers is still useful.
pub(crate) fn ensure(only: &[String], install: Install) -> Result<()> {
    let needs = needs(only);
    if install == Install::PrintOnly {
        return setup::ensure(&needs, install);
    }
    for need in needs {
        if let Err(error) = setup::ensure(&[need], install) {
            eprintln!("bench: going on without it: {error:#}");
        }
    }
    Ok(())
}

fn needs(only: &[String]) -> Vec<Need> {
    let chosen = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    let wanted = PARTS.iter().filter(|(name, _)| chosen(name)).flat_map(|(_, needs)| *needs);
    let mut needs: Vec<Need> = Vec::new();
    for need in wanted {
        if !needs.contains(need) {
            needs.push(*need);
        }
    }
    needs
}

/// Returns the step that builds a peer in the tools directory of this checkout, at the lowest priority.
pub(crate) fn build_step(tools_dir: &Path, peer: Peer, words: &str) -> Step {
    let (dir, name) = (quoted(tools_dir), peer.executable);
    Step {
        does: format!("building {name} into the target directory (a few minutes)"),
        command: format!(
            "nice -n 19 cargo install --locked --quiet {words} --root {dir} --target-dir {dir}/build && \
             ln -sf bin/{name} {dir}/{name}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str]) -> Vec<&'static str> {
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        let name = |need: &Need| match need {
            Need::Executable { name, .. } => name,
            Need::Peer(peer) => peer.executable,
            Need::RedisServer => "redis-server",
            _ => "something else",
        };
        needs(&only).iter().map(name).collect()
    }

    #[test]
    fn a_part_brings_in_what_it_takes_and_nothing_else() {
        assert_eq!(names(&["http"]), ["wrk", "nginx", "protoc", "throttlecrab-server"]);
        assert!(names(&["library"]).is_empty());
    }

    #[test]
    fn all_parts_together_need_everything_once() {
        let all = names(&[]);
        for name in [
            "redis-benchmark",
            "redis-server",
            "throttlecrab-server",
            "nginx",
            "wrk",
            "h2load",
            "limitador-rls",
        ] {
            assert_eq!(all.iter().filter(|one| **one == name).count(), 1, "{name} in {all:?}");
        }
    }

    #[test]
    fn a_peer_is_built_into_the_target_directory_and_found_there() {
        let Need::Peer(peer) = THROTTLECRAB else { panic!("not a peer") };
        let Source::Cargo(words) = peer.source else { panic!("not built") };
        let command = build_step(Path::new("/t/tools"), peer, words).command;
        let install =
            "nice -n 19 cargo install --locked --quiet throttlecrab-server --version 0.4.40 --root /t/tools";
        assert!(command.starts_with(install), "{command}");
        assert!(
            command.ends_with("ln -sf bin/throttlecrab-server /t/tools/throttlecrab-server"),
            "{command}"
        );
    }
}
