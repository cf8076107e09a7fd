//! Senders and receivers: the good client, the attackers, and the server that they all talk to.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::interrupt::Interrupt;
use super::lab::{self, Lab};
use super::process::Process;
use crate::tool;

const PORT: u16 = 7000;
/// 50 pings and 20 TCP requests per second: a busy client, and far below the limits of the built-in policy.
const PING_EVERY: Duration = Duration::from_millis(20);
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Above the SYN limit and below the packet limit of the built-in policy, so that both limits are seen at work.
const SYNS_PER_SEC: u64 = 1500;
/// How long to wait for results after sending has ended, for late replies and a loaded machine.
const GRACE: Duration = Duration::from_secs(10);

/// A process of ours that sends for a while and then prints one line of JSON.
struct Sender {
    process: Process,
    lasts: Duration,
}

impl Sender {
    fn start(
        lab: &Lab,
        name: &'static str,
        verb: &str,
        from: &str,
        lasts: Duration,
        extra: &[String],
    ) -> Result<Self> {
        let mut command = lab.at_net(&lab.profile().path_of("traffic"));
        command.args([verb, "--from", from, "--to", &format!("{}:{PORT}", lab::SERVER)]);
        command.args(["--for", &lasts.as_secs_f64().to_string()]).args(extra);
        Ok(Self { process: Process::start(name, &mut command)?, lasts })
    }

    fn finish(self, interrupt: &Interrupt) -> Result<Value> {
        let lines = self.process.finish(interrupt, self.lasts + GRACE)?;
        json_line(lines.last())
    }
}

fn json_line(line: Option<&String>) -> Result<Value> {
    let line = line.context("the traffic program printed nothing; expected a line of JSON")?;
    serde_json::from_str(line).with_context(|| format!("the traffic program printed {line:?}; expected JSON"))
}

fn number(json: &Value, pointer: &str) -> Result<u64> {
    json.pointer(pointer)
        .and_then(Value::as_u64)
        .with_context(|| format!("the traffic program has no number at {pointer}: {json}"))
}

/// The well-behaved client beside the attackers.
pub(super) struct GoodClient {
    ping: Process,
    ping_v6: Process,
    asking: Sender,
    lasts: Duration,
}

impl GoodClient {
    pub(super) fn start(lab: &Lab, lasts: Duration) -> Result<Self> {
        let every = ["--every".to_owned(), ASK_EVERY.as_millis().to_string()];
        Ok(Self {
            ping: ping(lab, "ping", lab::GOOD_CLIENT, lab::SERVER, lasts)?,
            ping_v6: ping(lab, "ping over IPv6", lab::GOOD_CLIENT_V6, lab::SERVER_V6, lasts)?,
            asking: Sender::start(lab, "the good TCP client", "ask", lab::GOOD_CLIENT, lasts, &every)?,
            lasts,
        })
    }

    pub(super) fn finish(self, interrupt: &Interrupt) -> Result<GoodClientSaw> {
        let asked = self.asking.finish(interrupt)?;
        let limit = self.lasts + GRACE;
        Ok(GoodClientSaw {
            ping: Replies::of_ping(&self.ping.finish(interrupt, limit)?)?,
            ping_v6: Replies::of_ping(&self.ping_v6.finish(interrupt, limit)?)?,
            tcp: Replies::of_asking(&asked)?,
        })
    }
}

fn ping(lab: &Lab, name: &'static str, from: &str, to: &str, lasts: Duration) -> Result<Process> {
    let count = (lasts.as_secs_f64() / PING_EVERY.as_secs_f64()).round() as u64;
    let ping = tool::find("ping").unwrap_or_else(|| "ping".into());
    let mut command = lab.at_net(&ping);
    // LC_ALL makes ping print a decimal point in every language, -n suppresses name look-ups, and -W waits a second for the last reply.
    command.env("LC_ALL", "C").args(["-n", "-W", "1", "-i", &PING_EVERY.as_secs_f64().to_string()]);
    command.args(["-c", &count.to_string(), "-I", from, to]);
    Process::start(name, &mut command)
}

/// The results of the good client.
pub(super) struct GoodClientSaw {
    pub(super) ping: Replies,
    pub(super) ping_v6: Replies,
    pub(super) tcp: Replies,
}

#[derive(Debug, PartialEq)]
pub(super) struct Replies {
    pub(super) asked: u64,
    pub(super) lost: u64,
    /// The median round trip in milliseconds; `None` if no reply came.
    pub(super) median_ms: Option<f64>,
}

impl Replies {
    fn of_ping(lines: &[String]) -> Result<Self> {
        let summary = lines
            .iter()
            .find(|line| line.contains(" packets transmitted"))
            .with_context(|| format!("ping printed no summary: {}", lines.join(" | ")))?;
        let count_before = |what: &str| {
            let part = summary.split(", ").find(|part| part.contains(what))?;
            part.split_whitespace().next()?.parse::<u64>().ok()
        };
        let asked = count_before("transmitted")
            .with_context(|| format!("ping does not say how many it sent: {summary}"))?;
        let came = count_before("received")
            .with_context(|| format!("ping does not say how many it received: {summary}"))?;
        let mut times: Vec<f64> = lines
            .iter()
            .filter_map(|line| line.split_once("time=")?.1.split_whitespace().next()?.parse().ok())
            .collect();
        times.sort_by(f64::total_cmp);
        Ok(Self { asked, lost: asked.saturating_sub(came), median_ms: times.get(times.len() / 2).copied() })
    }

    fn of_asking(json: &Value) -> Result<Self> {
        let (ok, failed) = (number(json, "/ok")?, number(json, "/failed")?);
        let median_us = if ok > 0 { Some(number(json, "/latency_us/p50")?) } else { None };
        Ok(Self { asked: ok + failed, lost: failed, median_ms: median_us.map(|us| us as f64 / 1000.0) })
    }
}

/// A UDP flood from one address and a SYN flood from another.
pub(super) struct Attack {
    udp: Sender,
    syns: Sender,
}

impl Attack {
    pub(super) fn start(lab: &Lab, lasts: Duration) -> Result<Self> {
        let pace = ["--pps".to_owned(), SYNS_PER_SEC.to_string()];
        Ok(Self {
            udp: Sender::start(lab, "the UDP flood", "flood", lab::UDP_ATTACKER, lasts, &[])?,
            syns: Sender::start(lab, "the SYN flood", "syns", lab::SYN_ATTACKER, lasts, &pace)?,
        })
    }

    pub(super) fn finish(self, interrupt: &Interrupt) -> Result<AttackSent> {
        let (udp, syns) = (self.udp.finish(interrupt)?, self.syns.finish(interrupt)?);
        Ok(AttackSent { udp: number(&udp, "/sent")?, syns: number(&syns, "/sent")? })
    }
}

/// The packets that the attackers sent, by their own count.
pub(super) struct AttackSent {
    pub(super) udp: u64,
    pub(super) syns: u64,
}

/// The server behind the limiter: a UDP socket that counts and a TCP echo.
pub(super) struct Server {
    process: Process,
}

impl Server {
    pub(super) fn start(lab: &Lab, interrupt: &Interrupt) -> Result<Self> {
        let mut command = lab.at_edge(&lab.profile().path_of("traffic"));
        command.args(["sink", "--listen", &format!("{}:{PORT}", lab::SERVER)]);
        let mut server = Self { process: Process::start("the server", &mut command)? };
        // The first answer shows that the server's sockets are open.
        server.received_from(lab::UDP_ATTACKER, interrupt)?;
        Ok(server)
    }

    /// Returns the datagrams from an address that have reached the socket.
    pub(super) fn received_from(&mut self, source: &str, interrupt: &Interrupt) -> Result<u64> {
        self.process.write_line("count")?;
        let line = self.process.next_line(interrupt, GRACE)?.context("the server does not answer")?;
        let counts = json_line(Some(&line))?;
        Ok(counts.pointer("/udp").and_then(|udp| udp.get(source)).and_then(Value::as_u64).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn losses_and_the_median_round_trip_are_read_from_ping() {
        let said = lines(
            "PING 10.99.0.1 (10.99.0.1) from 10.99.0.2 : 56(84) bytes of data.\n\
             64 bytes from 10.99.0.1: icmp_seq=1 ttl=64 time=0.500 ms\n\
             64 bytes from 10.99.0.1: icmp_seq=2 ttl=64 time=0.030 ms\n\
             64 bytes from 10.99.0.1: icmp_seq=4 ttl=64 time=0.041 ms\n\
             \n\
             --- 10.99.0.1 ping statistics ---\n\
             4 packets transmitted, 3 received, +1 errors, 25% packet loss, time 61ms\n\
             rtt min/avg/max/mdev = 0.030/0.190/0.500/0.200 ms",
        );
        assert_eq!(Replies::of_ping(&said).unwrap(), Replies { asked: 4, lost: 1, median_ms: Some(0.041) });
    }

    #[test]
    fn a_ping_without_any_reply_has_no_median() {
        let said = lines("9 packets transmitted, 0 received, 100% packet loss, time 161ms");
        assert_eq!(Replies::of_ping(&said).unwrap(), Replies { asked: 9, lost: 9, median_ms: None });
        assert!(Replies::of_ping(&lines("ping: connect: Network is unreachable")).is_err());
    }

    #[test]
    fn tcp_requests_are_read_from_the_traffic_program() {
        let json: Value = serde_json::from_str(r#"{"ok":57,"failed":3,"latency_us":{"p50":210}}"#).unwrap();
        assert_eq!(Replies::of_asking(&json).unwrap(), Replies { asked: 60, lost: 3, median_ms: Some(0.21) });
        let json: Value = serde_json::from_str(r#"{"ok":0,"failed":3,"latency_us":{"p50":null}}"#).unwrap();
        assert_eq!(Replies::of_asking(&json).unwrap().median_ms, None);
    }
}
