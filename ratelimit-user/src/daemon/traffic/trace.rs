//! Writes every verdict of the kernel program as a line on standard output, for `run --trace`.

use std::{
    io::{self, Write as _},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use ratelimit_common::abi::{Verdict, counter::Fate};

use crate::{
    compile::Places,
    dataplane::{kernel::Program, trace::TracedVerdict},
    failure::{ExitCode, Failure},
};

/// How often the log is read. Its buffer has room for about a thousand lines; further lines are lost.
const READ_EVERY: Duration = Duration::from_millis(20);

/// A handle to the thread that writes the lines. The thread ends with the process; a slow reader of standard output holds up nothing else.
#[derive(Debug)]
pub(in crate::daemon) struct Trace {
    services: Arc<Mutex<Places>>,
}

impl Trace {
    pub(in crate::daemon) fn begin(program: &mut Program, services: &Places) -> Result<Self, Failure> {
        let services = Arc::new(Mutex::new(services.clone()));
        let names = Arc::clone(&services);
        let mut log = program.verdicts(move |verdict| {
            let line = line(&verdict, &names.lock().unwrap_or_else(PoisonError::into_inner));
            let _unread = io::stdout().lock().write_all(line.as_bytes());
        })?;
        let reader = thread::Builder::new().name("trace".to_owned()).spawn(move || {
            loop {
                log.read();
                thread::sleep(READ_EVERY);
            }
        });
        reader.map_err(|error| {
            Failure::new(
                ExitCode::Unsupported,
                format!("cannot start the thread that reads the trace: {error}"),
            )
        })?;
        Ok(Self { services })
    }

    /// Takes over the names of services after a change of policy.
    pub(in crate::daemon) fn know(&self, services: &Places) {
        let mut known = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != *services {
            *known = services.clone();
        }
    }
}

/// Returns the line about a verdict: `drop 192.0.2.7 web limit_packets, 60 bytes`.
fn line(traced: &TracedVerdict, services: &Places) -> String {
    let verdict = match (traced.verdict, traced.fate) {
        (Verdict::Pass, Fate::Waived) => "pass (would drop)",
        (Verdict::Pass, Fate::Marked) => "pass (marked)",
        (Verdict::Pass, _) => "pass",
        (Verdict::Drop, _) => "drop",
        (Verdict::Reply, Fate::Rejected) => "reply (rejected)",
        (Verdict::Reply, _) => "reply",
    };
    let source = traced.source.map_or_else(|| "-".to_owned(), |source| source.to_string());
    let service = services
        .iter()
        .find(|(index, _)| u32::try_from(index + 1) == Ok(traced.service))
        .map_or("-", |(_, name)| name);
    format!("{verdict} {source} {service} {}, {} bytes\n", traced.reason.name(), traced.bytes)
}

#[cfg(test)]
mod tests {
    use ratelimit_common::abi::Reason;

    use super::*;

    #[test]
    fn a_line_names_source_service_and_reason() {
        let services = Places::known([("web", 0), ("dns", 1)].into_iter());
        let refused = TracedVerdict {
            verdict: Verdict::Drop,
            source: Some([192, 0, 2, 7].into()),
            service: 2,
            reason: Reason::LimitPackets,
            fate: Fate::Decided,
            bytes: 60,
        };
        assert_eq!(line(&refused, &services), "drop 192.0.2.7 dns limit_packets, 60 bytes\n");
        let waived = TracedVerdict { verdict: Verdict::Pass, fate: Fate::Waived, ..refused };
        assert_eq!(line(&waived, &services), "pass (would drop) 192.0.2.7 dns limit_packets, 60 bytes\n");
        let arp = TracedVerdict {
            verdict: Verdict::Pass,
            source: None,
            service: 0,
            reason: Reason::Arp,
            ..refused
        };
        assert_eq!(line(&arp, &services), "pass - - arp, 60 bytes\n");
    }
}
