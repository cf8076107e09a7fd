//! The real program in the real kernel, fed by BPF_PROG_TEST_RUN.

use aya::{
    include_bytes_aligned,
    programs::{TestRun as _, TestRunOptions, Xdp},
};
use ratelimit_common::abi::{Counter, Reason, Verdict, listener::Offsets};
use ratelimit_user::{
    compile::{
        Desired,
        lists::{self, Lists, Prefix},
    },
    dataplane::{
        framing::Framing,
        kernel::{self, KernelMaps, Program},
        listener::{self, Unreadable},
        pin::PinDir,
        probe,
        trace::{Image, TraceLevel, TracedVerdict, VerdictLog},
    },
};

/// The kernel program, built with the feature `trace`.
pub static TRACED: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/traced/ratelimit-ebpf"));

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;

/// A loaded program with maps of its own.
#[derive(Debug)]
pub struct Loaded {
    /// The program itself.
    pub program: Program,
    framing: Framing,
    /// The maps of the program.
    pub maps: KernelMaps,
    /// What the lists hold.
    pub lists: Lists,
    users: Vec<(Prefix, u16)>,
}

/// What the program did with a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What happened to the frame.
    pub verdict: Verdict,
    /// Every counter that moved, by how much.
    pub moved: Vec<(Reason, Counter)>,
}

impl Loaded {
    /// Loads the program with a policy in force.
    pub fn new(policy: &Desired) -> Self {
        Self::with_sources(policy, 65_536)
    }

    /// Loads the program with a policy and a table of this many sources.
    pub fn with_sources(policy: &Desired, sources: u32) -> Self {
        Self::knowing(policy, sources, listener::offsets())
    }

    /// Loads the program with what it is to know of the kernel's listeners.
    pub fn knowing(policy: &Desired, sources: u32, offsets: Result<Offsets, Unreadable>) -> Self {
        Self::of_image(None, policy, sources, offsets, Image::PLAIN)
    }

    /// Loads the program with a policy in force, a table of this size, and maps that are pinned.
    pub fn pinned(pins: &PinDir, policy: &Desired, sources: u32) -> Self {
        Self::of_image(Some(pins), policy, sources, listener::offsets(), Image::PLAIN)
    }

    fn of_image(
        pins: Option<&PinDir>,
        policy: &Desired,
        sources: u32,
        offsets: Result<Offsets, Unreadable>,
        image: Image,
    ) -> Self {
        probe::require_kernel(&probe::kernel_release()).expect("a supported kernel");
        let (program, mut maps) = kernel::load_image(pins, sources, offsets, image)
            .expect("these tests need root and BPF: load the program");
        let mut lists = Lists::new();
        maps.enforce(&mut lists, None, policy).expect("put the policy in force");
        Self { program, framing: Framing::Ethernet, maps, lists, users: policy.user_prefixes().collect() }
    }

    /// Loads the program that logs verdicts from a level on.
    pub fn traced(policy: &Desired, level: TraceLevel) -> Self {
        Self::of_image(None, policy, 65_536, listener::offsets(), Image::of_object(TRACED, level))
    }

    /// The log of a traced program, which hands each verdict to `told`.
    pub fn verdicts<F: Fn(TracedVerdict) + Send + Sync>(&mut self, told: F) -> VerdictLog<F> {
        self.program.verdicts(told).expect("a traced program")
    }

    /// Runs frames through the program for interfaces of this framing from now on.
    pub fn for_framing(mut self, framing: Framing) -> Self {
        self.program.for_framing(framing).expect("load the program for that");
        self.framing = framing;
        self
    }

    /// Replaces the block and allow lists.
    pub fn set_lists(&mut self, wanted: Lists) {
        let wanted = lists::with_users(wanted, self.users.iter().copied());
        let changes = lists::changes(&self.lists, &wanted);
        self.maps.change_lists(&mut self.lists, &changes).expect("write the lists");
    }

    /// Why the programs for cookies do not know what listeners ask for.
    pub fn listener_problem(&self) -> Option<&str> {
        self.program.listener_problem()
    }

    /// The XDP program that frames are run through.
    pub fn xdp(&mut self) -> &mut Xdp {
        self.program.for_framing(self.framing).expect("an XDP program")
    }

    /// The program and its maps, to be used at the same time.
    pub fn parts(&mut self) -> (&mut Xdp, &mut KernelMaps) {
        (self.program.for_framing(self.framing).expect("an XDP program"), &mut self.maps)
    }

    /// Runs one frame. Frames below fourteen bytes are not accepted by the kernel's test facility.
    pub fn run(&mut self, frame: &[u8]) -> Verdict {
        run(self.xdp(), frame, 1)
    }

    /// Runs one frame and says which counters moved.
    pub fn outcome(&mut self, frame: &[u8]) -> Outcome {
        let before = self.counters();
        let verdict = self.run(frame);
        Outcome { verdict, moved: moved(&before, &self.counters()) }
    }

    /// Runs one frame, and says what became of it: what the program left in its place.
    pub fn rewrite(&mut self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let mut out = vec![0; frame.len() + 256];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat: 1,
            ..TestRunOptions::default()
        };
        let result = self.xdp().test_run(options).expect("BPF_PROG_TEST_RUN");
        let len = result.data_size_out as usize;
        out.truncate(len);
        (verdict(result.return_value), out)
    }

    /// The counters of all reasons.
    pub fn counters(&self) -> Vec<(Reason, Counter)> {
        self.maps.counters().expect("read the counters")
    }

    /// Packets counted for a reason.
    pub fn count(&self, reason: Reason) -> u64 {
        self.counters()[reason as usize].1.packets
    }
}

/// Runs a frame so many times; the verdict is the last one's.
pub fn run(xdp: &Xdp, frame: &[u8], times: u32) -> Verdict {
    let options = TestRunOptions { data_in: Some(frame), repeat: times, ..TestRunOptions::default() };
    verdict(xdp.test_run(options).expect("BPF_PROG_TEST_RUN").return_value)
}

fn verdict(action: u32) -> Verdict {
    match action {
        XDP_PASS => Verdict::Pass,
        XDP_DROP => Verdict::Drop,
        XDP_TX => Verdict::Reply,
        other => panic!("the program returned {other}"),
    }
}

/// What moved between two readings.
pub fn moved(before: &[(Reason, Counter)], after: &[(Reason, Counter)]) -> Vec<(Reason, Counter)> {
    let difference = |((reason, before), (_, after)): (&(Reason, Counter), &(Reason, Counter))| {
        let counter = Counter { packets: after.packets - before.packets, bytes: after.bytes - before.bytes };
        (counter.packets > 0 || counter.bytes > 0).then_some((*reason, counter))
    };
    before.iter().zip(after).filter_map(difference).collect()
}
