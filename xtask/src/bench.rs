//! `cargo xtask bench`: builds the limiter and the measuring program, and runs the measuring program in its own place.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};

use crate::build::{Binary, BuildProfile};
use crate::setup::{self, Install, Need};
use crate::{build, peer, tool};

/// The programs that the comparison of packets needs: peers, and tools that fill them in bulk.
const PEERS: [Need; 6] = [
    Need::Executable { name: "nft", package: "nftables" },
    Need::Executable { name: "iptables", package: "iptables" },
    // ipset makes lists of addresses for iptables.
    Need::Executable { name: "ipset", package: "ipset" },
    // bpftool shows programs as the kernel has translated them.
    Need::Executable { name: "bpftool", package: "bpftool" },
    Need::Executable { name: "ethtool", package: "ethtool" },
    Need::Executable { name: "unshare", package: "util-linux" },
];

/// The programs that the comparison of requests needs to keep servers and clients apart, and to end them.
const REQUESTS: [Need; 2] = [
    Need::Executable { name: "taskset", package: "util-linux" },
    Need::Executable { name: "setpriv", package: "util-linux" },
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Questions instead of packets: the service over RESP, HTTP and gRPC, and its engine, beside Redis, nginx, throttlecrab, Limitador and
    /// governor; installs those for this checkout, takes no root
    #[arg(long, conflicts_with = "frame")]
    requests: bool,
    /// Fewer cases and shorter rounds: about a minute, once everything is built
    #[arg(long)]
    quick: bool,
    /// How to print the results
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    output: String,
    /// Only this part, case or contestant; may be given several times. A wrong name is answered with all there are
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Bytes of a frame
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=9014))]
    frame: u16,
    /// Also write the report into docs/performance, and of packets draw the main table into docs/performance.svg
    #[arg(long, alias = "plot")]
    save: bool,
}

pub(crate) fn run(options: &Options, install: Install) -> Result<()> {
    if options.requests {
        setup::ensure(&[&setup::KERNEL_BUILD[..], &REQUESTS].concat(), install)?;
        peer::ensure(&options.only, install)?;
    } else {
        let needs = [&setup::KERNEL_BUILD[..], &setup::NAMESPACES, &PEERS].concat();
        setup::ensure_as_root(&needs, install, "bench")?;
    }
    eprintln!("bench: building");
    build::release(&Binary::RATELIMIT)?;
    build::release(&Binary::BENCH)?;
    build::release(&Binary::TRAFFIC)?;
    // This process becomes the measuring program, so that Ctrl-C reaches it and the shell waits until it has cleaned up.
    let error = tool::command(BuildProfile::Release.path_of("bench")).args(words(options)).exec();
    Err(error).context("cannot start target/release/bench")
}

/// Returns the options that differ from the defaults, as words of a command line. The report repeats them as the command to type.
fn words(options: &Options) -> Vec<String> {
    let mut words = Vec::new();
    words.extend(options.requests.then(|| "--requests".into()));
    words.extend(options.quick.then(|| "--quick".into()));
    if options.output != "text" {
        words.extend(["--output".into(), options.output.clone()]);
    }
    words.extend(options.only.iter().flat_map(|name| ["--only".into(), name.clone()]));
    if options.frame != 64 {
        words.extend(["--frame".into(), options.frame.to_string()]);
    }
    words.extend(options.save.then(|| "--save".into()));
    words
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn understood(line: &str) -> Result<Vec<String>, String> {
        let parsed = Line::try_parse_from(std::iter::once("bench").chain(line.split_whitespace()));
        parsed.map(|line| words(&line.options)).map_err(|error| error.to_string())
    }

    #[test]
    fn only_what_differs_from_the_defaults_is_passed_on() {
        assert!(understood("").unwrap().is_empty());
        assert!(understood("--output text --frame 64").unwrap().is_empty());
        let expected = ["--quick", "--output", "json", "--only", "1", "--frame", "1500", "--save"];
        assert_eq!(understood("--save --frame 1500 --only 1 --output json --quick").unwrap(), expected);
    }

    #[test]
    fn parts_of_the_comparison_of_requests_may_be_named_in_one_word() {
        let expected = ["--requests", "--quick", "--only", "resp", "--only", "lease"];
        assert_eq!(understood("--requests --quick --only resp,lease").unwrap(), expected);
        assert_eq!(understood("--requests --quick --only resp --only lease").unwrap(), expected);
    }

    #[test]
    fn packets_have_frames_and_requests_have_none() {
        let error = understood("--requests --frame 1500").unwrap_err();
        assert!(error.contains("--requests") && error.contains("--frame"), "{error}");
    }
}
