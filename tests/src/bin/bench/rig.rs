//! The rig's kernel programs, loaded: the bare ones that are contestants, and the generator.

use std::{fs, io::ErrorKind, sync::atomic::AtomicBool};

use anyhow::{Context, Result, anyhow};
use aya::{
    Ebpf, EbpfLoader,
    programs::{ProgramError, TestRun as _, TestRunAttrs, TestRunOptions, Xdp, XdpMode},
};
use ratelimit_rig::syn;

use crate::{
    jumbo::{self, Jumbo},
    traffic::{Family, Template, Traffic},
};

/// The object that the build script compiled.
pub(crate) const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/rig/ratelimit-rig"));

/// Frames that go through the wire together: what a NIC's driver takes from its ring in one go.
const BATCH: u32 = 64;

/// A bare program on an interface of the calling thread's namespace; comes off with the value.
pub(crate) fn attach(program: &str, interface: &str) -> Result<Ebpf> {
    attached(EbpfLoader::new().load(OBJECT).context("cannot load the rig's object")?, program, interface)
}

/// Attaches a program of an object whose globals and maps are filled in.
pub(crate) fn attached(mut ebpf: Ebpf, program: &str, interface: &str) -> Result<Ebpf> {
    let xdp = xdp(&mut ebpf, program)?;
    xdp.load().with_context(|| format!("the kernel does not take the rig's program {program}"))?;
    xdp.attach(interface, XdpMode::Driver)
        .with_context(|| format!("cannot attach {program} to {interface}"))?;
    Ok(ebpf)
}

/// One of the rig's programs, by name.
pub(crate) fn xdp<'e>(ebpf: &'e mut Ebpf, program: &str) -> Result<&'e mut Xdp> {
    let found = ebpf.program_mut(program).ok_or_else(|| anyhow!("the rig has no program {program}"))?;
    found.try_into().with_context(|| format!("{program} is not an XDP program"))
}

/// One of the programs of an object that is shared.
pub(crate) fn in_use<'e>(ebpf: &'e Ebpf, program: &str) -> Result<&'e Xdp> {
    let found = ebpf.program(program).ok_or_else(|| anyhow!("the rig has no program {program}"))?;
    found.try_into().with_context(|| format!("{program} is not an XDP program"))
}

/// The rig's object with the globals that shape its sources.
pub(crate) fn load_varying(traffic: &Traffic, template: &Template, interface: u32) -> Result<Ebpf> {
    // Not used, and all zero, by programs that only change the source.
    let syn = template.frame.as_slice().try_into().map(syn::words).unwrap_or_default();
    EbpfLoader::new()
        .override_global("SYN", &syn, true)
        .override_global("SOURCES", &traffic.sources, true)
        .override_global("BASE_V4", &traffic.base_v4, true)
        .override_global("FIXED_SUM", &template.sum, true)
        .override_global("FIXED_TCP_SUM", &template.tcp_sum, true)
        .override_global("INTERFACE", &interface, true)
        .load(OBJECT)
        .context("cannot load the rig's object")
}

/// What makes the packets of one lane. Goes on where it stopped, so each contestant of a case gets the same packets.
pub(crate) struct Generator {
    maker: Maker,
    outlet: String,
}

/// Who makes the packets.
enum Maker {
    Live(Live),
    /// For frames that are longer than live ones can be.
    Jumbo(Jumbo),
}

/// A program of the rig and the frame that it gets.
struct Live {
    ebpf: Ebpf,
    program: &'static str,
    frame: Vec<u8>,
}

impl Generator {
    /// Call from the generator's namespace: interface numbers belong to it.
    pub(crate) fn new(traffic: &Traffic, outlet: &str) -> Result<Self> {
        if traffic.frame_len > jumbo::LONGEST_LIVE_FRAME {
            return Ok(Self {
                maker: Maker::Jumbo(Jumbo::new(*traffic, outlet)?),
                outlet: outlet.to_owned(),
            });
        }
        let program = match traffic.family {
            Family::V4 => "generate",
            Family::V6 => "generate_v6",
        };
        Self::live(traffic, traffic.template(), program, outlet)
    }

    /// A generator of TCP segments that open connections to the receiving host.
    pub(crate) fn of_syns(traffic: &Traffic, outlet: &str) -> Result<Self> {
        Self::live(traffic, traffic.syn_template(), "generate_syn", outlet)
    }

    fn live(traffic: &Traffic, template: Template, program: &'static str, outlet: &str) -> Result<Self> {
        let interface = ratelimit_user::dataplane::interface::find(outlet)
            .with_context(|| format!("cannot find {outlet}"))?
            .index;
        let mut ebpf = load_varying(traffic, &template, interface)?;
        xdp(&mut ebpf, program)?.load().context("the kernel does not take the generator")?;
        let live = Live { ebpf, program, frame: template.frame };
        Ok(Self { maker: Maker::Live(live), outlet: outlet.to_owned() })
    }

    /// Sends until it has landed and a signal has come. Call from the generator's namespace.
    pub(crate) fn send_until(&self, landed: &AtomicBool) -> Result<()> {
        match &self.maker {
            Maker::Live(live) => live.send_until_interrupted(),
            Maker::Jumbo(jumbo) => jumbo.send_until(landed),
        }
    }

    /// Packets that the receiver has taken from the wire so far, dropped or passed. Call from the generator's
    /// namespace: its end of a veth shows what the other end has done.
    pub(crate) fn arrived(&self) -> Result<u64> {
        let table = fs::read_to_string("/proc/thread-self/net/dev").context("cannot read packet counters")?;
        sent_packets(&table, &self.outlet).ok_or_else(|| anyhow!("no packet counter for {}", self.outlet))
    }
}

impl Live {
    /// Not in portions: with each call the kernel rewires its dispatcher for XDP programs and waits for all CPUs, which
    /// takes longer than sending a hundred thousand packets.
    fn send_until_interrupted(&self) -> Result<()> {
        let options = TestRunOptions {
            data_in: Some(&self.frame),
            // Some minutes, should no signal ever come.
            repeat: u32::MAX,
            attrs: TestRunAttrs::new().xdp_live_frames(BATCH),
            ..TestRunOptions::new()
        };
        match in_use(&self.ebpf, self.program)?.test_run(options) {
            Ok(_) => Ok(()),
            Err(error) if is_interruption(&error) => Ok(()),
            Err(error) => Err(error).context("cannot send live frames, which takes kernel 5.18"),
        }
    }
}

fn is_interruption(error: &ProgramError) -> bool {
    matches!(error, ProgramError::SyscallError(call) if call.io_error.kind() == ErrorKind::Interrupted)
}

/// The count of packets sent by an interface, from the text of /proc/net/dev.
fn sent_packets(table: &str, interface: &str) -> Option<u64> {
    /// Behind the name: eight numbers about receiving, then bytes, packets and more about sending.
    const SENT: usize = 9;
    table.lines().find_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        (name.trim() == interface).then(|| numbers.split_whitespace().nth(SENT)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_sent_packets_is_found_by_interface() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n\
                     \x20 out1:  1 2 3 4 5 6 7 8  9 10 0 0 0 0 0 0\n out11: 1 2 3 4 5 6 7 8  9 11 0 0 0 0 0 0\n";
        assert_eq!(sent_packets(table, "out1"), Some(10));
        assert_eq!(sent_packets(table, "out11"), Some(11));
        assert_eq!(sent_packets(table, "out2"), None);
    }
}
