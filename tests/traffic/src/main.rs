//! Real packets from real sockets, for the demonstration and the end-to-end suites. Every verb ends with one line of JSON.
//!
//! Each sender binds to the address it is told, so that one namespace can play a good client and its bad neighbours.

mod arrivals;
mod ask;
mod flood;
mod forge;
mod pace;
mod sink;
mod syns;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "traffic", about = "Send and receive real traffic, and count it")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Send UDP datagrams, as fast as one thread can or at a given pace
    Flood {
        #[command(flatten)]
        route: Route,
        /// Datagrams per second; as fast as possible without it
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        pps: Option<u64>,
        /// Bytes of payload
        #[arg(long, value_name = "BYTES", default_value_t = 18, value_parser = clap::value_parser!(u16).range(..=65507))]
        size: u16,
    },
    /// Open TCP connections and abandon them, as fast as one thread can or at a given pace
    Syns {
        #[command(flatten)]
        route: Route,
        /// Connections per second; as fast as possible without it
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        pps: Option<u64>,
    },
    /// Send packets from forged sources, another one each time (IPv4: 198.18.0.0/15 or --within, IPv6: networks of 2001:db8::/32)
    Forge {
        /// Destination
        #[arg(long, value_name = "ADDR:PORT")]
        to: SocketAddr,
        /// How long, in seconds; fractions are fine
        #[arg(long = "for", value_name = "SECS", value_parser = seconds)]
        lasts: Duration,
        /// What they are
        #[arg(long, value_enum, default_value_t = forge::Kind::Syn)]
        kind: forge::Kind,
        /// IPv4 sources of this prefix
        #[arg(long, value_name = "CIDR", value_parser = forge::Within::parse)]
        within: Option<forge::Within>,
        /// But never this one; may be given several times
        #[arg(long, value_name = "ADDR")]
        spare: Vec<Ipv4Addr>,
        /// Sent from this port, and not from any; may be given several times
        #[arg(long, value_name = "PORT")]
        from_port: Vec<u16>,
        /// Segments per second; as fast as possible without it
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        pps: Option<u64>,
    },
    /// Ask like a good client: connect over TCP, send a line, read its echo, close
    Ask {
        #[command(flatten)]
        route: Route,
        /// Milliseconds from the start of one request to the start of the next
        #[arg(long, value_name = "MS", default_value_t = 50)]
        every: u64,
        /// Seconds for each step of a request. A lost SYN is sent again after one, so by default that is a failure
        #[arg(long, value_name = "SECONDS", default_value_t = 1)]
        patience: u64,
    },
    /// Count UDP datagrams by source and echo TCP; a line on standard input asks for the counts, its end stops
    Sink {
        /// Address and port, for UDP and TCP alike
        #[arg(long, value_name = "ADDR:PORT")]
        listen: SocketAddr,
        /// Tell when each datagram came too, in nanoseconds of CLOCK_MONOTONIC, with the counts that are asked for next
        #[arg(long)]
        times: bool,
    },
}

/// Where a sender sends, and how long.
#[derive(clap::Args)]
struct Route {
    /// Source address
    #[arg(long, value_name = "ADDR")]
    from: IpAddr,
    /// Destination
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddr,
    /// How long, in seconds; fractions are fine
    #[arg(long = "for", value_name = "SECS", value_parser = seconds)]
    lasts: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time; use seconds above 0 such as 5 or 0.5");
    let duration =
        Duration::try_from_secs_f64(text.parse().map_err(|_error| wrong())?).map_err(|_error| wrong())?;
    if duration.is_zero() { Err(wrong()) } else { Ok(duration) }
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Flood { route, pps, size } => flood::run(&route, pps, size),
        Verb::Syns { route, pps } => syns::run(&route, pps),
        Verb::Forge { to, lasts, kind, within, spare, from_port, pps } => {
            forge::run(to, lasts, (kind, &from_port), pps, (within, &spare))
        }
        Verb::Ask { route, every, patience } => {
            ask::run(&route, Duration::from_millis(every), Duration::from_secs(patience))
        }
        Verb::Sink { listen, times } => sink::run(listen, times),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("traffic: {error:#}");
            ExitCode::FAILURE
        }
    }
}
