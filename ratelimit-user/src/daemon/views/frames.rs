//! Passes refused packets to callers of `watch`, by their copies: those that drop events were sent about, or with `--pcap` all that are sampled.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use ratelimit_common::abi::sample::SampleHeader;
use tokio::sync::{broadcast::error::RecvError, mpsc};

use crate::{
    clock,
    compile::Places,
    control::protocol::Reply,
    daemon::{host::HostCell, traffic::CopiedFrame},
    dataplane::{interface, probe},
    drops::{Filter, RefusedFrame, Sighting},
    policy::{Carrier, SourcePolicy},
    replay::Cause,
    stats::sampled::{PacketEnds, Sampled},
};

/// The number of frames that can wait for one watcher. If it does not read, further frames are lost and counted.
const WAITING: usize = 1024;
/// How often a watcher is told whether frames can be sampled.
const PROBLEMS_EVERY: Duration = Duration::from_millis(500);
/// How long names are used before they are read again.
const NAMES_LAST: Duration = Duration::from_secs(1);

/// Returns a stream of refused packets that a filter wants, from now on. It ends when the receiver is dropped. `frames`: sampled packets, with their
/// first bytes; otherwise those that drop events were sent about.
pub(in crate::daemon) fn watch(host: &Arc<HostCell>, filter: Filter, frames: bool) -> mpsc::Receiver<Reply> {
    let traffic = Arc::clone(&host.host().traffic);
    let mut copies = traffic.copies(host);
    let (sender, receiver) = mpsc::channel(WAITING);
    let host = Arc::downgrade(host);
    tokio::spawn(async move {
        let mut names: Option<FrameNames> = None;
        let is_wanted = |header: &SampleHeader| match frames {
            true => header.weight() > 0,
            false => header.is_reported(),
        };
        let (mut said, mut second) = (None, tokio::time::interval(PROBLEMS_EVERY));
        loop {
            let copy = tokio::select! {
                () = sender.closed() => return,
                copy = copies.recv() => copy,
                _ = second.tick() => {
                    let problem = traffic.problem();
                    if let Some(problem) = problem.as_ref().filter(|_| problem != said) {
                        let notice = format!("frames cannot be sampled, it is tried again: {problem}");
                        if sender.send(Reply::Notice(notice)).await.is_err() {
                            return;
                        }
                    }
                    said = problem;
                    continue;
                }
            };
            let reply = match copy {
                Ok(copy) if !is_wanted(&copy.header) => continue,
                Ok(copy) => {
                    if names.as_ref().is_none_or(|names| names.read.elapsed() > NAMES_LAST) {
                        names = FrameNames::read(&host);
                    }
                    let Some(names) = &mut names else { return };
                    match names.refused_frame(&copy, &filter) {
                        Some(frame) if frames => Reply::Frame(Box::new(frame)),
                        Some(frame) => Reply::Dropped(frame.packet),
                        None => continue,
                    }
                }
                Err(RecvError::Lagged(lost)) => Reply::Lost(lost),
                Err(RecvError::Closed) => return,
            };
            if sender.send(reply).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// The names for the numbers in a copy of a frame.
struct FrameNames {
    read: Instant,
    source: SourcePolicy,
    services: Places,
    interfaces: HashMap<u32, String>,
}

impl FrameNames {
    /// Reads the names from the host; `None` if the daemon is gone.
    fn read(host: &Weak<HostCell>) -> Option<Self> {
        let host = host.upgrade()?;
        let host = host.host();
        Some(Self {
            read: Instant::now(),
            source: host.policy().source().clone(),
            services: host.services(),
            interfaces: HashMap::new(),
        })
    }

    /// Returns a copy with names, if its frame was refused and the filter wants it.
    fn refused_frame(&mut self, copy: &CopiedFrame, filter: &Filter) -> Option<RefusedFrame> {
        let header = &copy.header;
        let cause = Cause::of(header.slot, false);
        if !cause.refuses() {
            return None;
        }
        let sampled = Sampled::of(*header, &copy.bytes);
        let ns_ago = probe::now_ns().saturating_sub(header.time_ns);
        let unix_ns = (clock::since_1970().as_nanos() as u64).saturating_sub(ns_ago);
        let source = sampled.source.map(|address| self.source.around(address));
        if source.is_none() && !filter.wants_without_source(cause.reason) {
            return None;
        }
        let sighting = Sighting {
            time_ns: header.time_ns,
            unix_ms: unix_ns / 1_000_000,
            // This placeholder for a frame without a source is replaced below.
            source: source.unwrap_or(crate::policy::Prefix::ALL_V4),
            reason: cause.reason,
            fate: cause.fate,
            service: cause.service_name(&self.services).map(str::to_owned),
            port: sampled.port,
            len: header.len,
        };
        if source.is_some() && !filter.wants(&sighting) {
            return None;
        }
        let mut packet = sighting.dropped();
        if let Some(ends) = PacketEnds::of(header, &copy.bytes) {
            packet.protocol = Some(Carrier::numbered(ends.protocol).to_string());
            packet.destination = Some(ends.destination.to_string());
            packet.source_port = ends.source_port;
            packet.port = ends.port;
        }
        if source.is_none() {
            packet.source = "-".to_owned();
        }
        Some(RefusedFrame {
            packet,
            unix_ns,
            interface: self.interface(header.interface),
            is_ip: header.link == 1,
            one_in: sampled.weight,
            hex: RefusedFrame::digits(&copy.bytes),
        })
    }

    fn interface(&mut self, index: u32) -> String {
        if !self.interfaces.contains_key(&index) {
            let all = interface::list().unwrap_or_default();
            self.interfaces = all.into_iter().map(|one| (one.index, one.name)).collect();
            self.interfaces.entry(index).or_insert_with(|| format!("interface {index}"));
        }
        self.interfaces[&index].clone()
    }
}
