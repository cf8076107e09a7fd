//! The kernel object itself: what was compiled into it, and what the kernel makes of it.

use std::{fs, net::Ipv4Addr, path::Path, sync::Mutex};

use aya::maps::{Array, Map, MapData};
use ratelimit_common::{
    abi::{Policy, Reason, SourceKey, Switches, Verdict, counter::Fate, names},
    limit::{
        gcra,
        prefilter::{self, CELL_BIT_WORDS},
    },
};
use ratelimit_tests::{
    bpffs::Scratch,
    frames::{ARP, Ipv4, SYN, ethernet},
    loaded::{Loaded, TRACED},
    policies,
    stack::{self, FRAME_STEP, MAX_STACK},
};
use ratelimit_user::{
    dataplane::{
        OBJECT,
        framing::Framing,
        kernel, listener,
        pin::{Layout, PinDir},
        probe::{self, KernelRelease},
        trace::{Image, TraceLevel, TracedVerdict},
    },
    explain::{Remembered as _, Row},
};

/// The opcode of an atomic operation on eight bytes, and the immediate that makes it a compare-and-exchange.
const ATOMIC_DW: u8 = 0xdb;
const CMPXCHG: [u8; 4] = 0xf1_u32.to_le_bytes();

#[test]
fn buckets_are_updated_by_the_compare_and_exchange_instruction() {
    let found = OBJECT.chunks_exact(8).filter(|word| word[0] == ATOMIC_DW && word[4..] == CMPXCHG).count();
    assert!(found >= 2, "one in each program at least, found {found}");
}

#[test]
fn the_kernel_accepts_all_programs_far_from_its_complexity_limit() {
    let stacks = stack::depths(OBJECT);
    let mut measured = Vec::new();
    let traced = (Image::of_object(TRACED, TraceLevel::Debug), false);
    let traced = (!is_recording() && !is_untraced()).then_some(traced);
    for (image, recorded) in [(Image::PLAIN, true)].into_iter().chain(traced) {
        let (mut program, _maps) = kernel::load_image(None, 1_000, listener::offsets(), image).unwrap();
        program.for_framing(Framing::Ip).unwrap();
        assert_eq!(program.cookie_problem(), None);
        for name in programs() {
            let count = program.one(name).unwrap().info().unwrap().verified_instruction_count();
            println!("verified instructions of {name}: {count:?}");
            // The verifier gives up at a million. Kernels 6.1 to 7.2 were found to differ by a factor of 1.3 at most. The traced program, which no
            // host runs unless somebody looks for a fault, may need more.
            let most = if recorded { 260_000 } else { 600_000 };
            assert!(count.is_some_and(|count| count < most), "{count:?}");
            if recorded {
                measured.push((name, count.unwrap_or(0), stacks[name]));
            }
        }
    }
    for (name, instructions, stack) in &measured {
        println!("verified: {} {name} {instructions} {stack}", series());
    }
    let rises: Vec<String> = measured.into_iter().filter(|_| !is_recording()).filter_map(rise).collect();
    assert!(
        rises.is_empty(),
        "{rises:?}: `cargo xtask vm --loads --record` writes tests/verified.txt if that is meant"
    );
}

/// Kernel series, program, verified instructions and bytes of stack, as they were when somebody last looked.
const RECORD: &str = include_str!("../../verified.txt");

/// Whether `cargo xtask vm --record` writes down what is measured here. Only the plain image is, and it is not held against the record of before.
fn is_recording() -> bool {
    std::env::var_os("RECORDING").is_some()
}

/// Whether the traced image is left out: a guest of `cargo xtask vm --short` has no time for it.
fn is_untraced() -> bool {
    std::env::var_os("UNTRACED").is_some()
}

/// The running kernel's series, such as `6.1`.
fn series() -> String {
    let KernelRelease(major, minor) = KernelRelease::parse(&probe::kernel_release()).expect("a release");
    format!("{major}.{minor}")
}

/// What to say of a program that takes a tenth more than it did on this kernel, if that was recorded.
fn rise((name, instructions, stack): (&str, u32, u32)) -> Option<String> {
    let of_program = format!("{} {name} ", series());
    let Some(recorded) = RECORD.lines().find_map(|line| line.strip_prefix(&of_program)) else {
        println!("{of_program}is not in tests/verified.txt, so nothing says how much it took before");
        return None;
    };
    let (instructions_then, stack_then) = recorded.split_once(' ').expect("two numbers");
    let [instructions_then, stack_then] =
        [instructions_then, stack_then].map(|number| number.parse::<u32>().expect("a number"));
    let rose =
        instructions > instructions_then + instructions_then / 10 || stack > stack_then + stack_then / 10;
    rose.then(|| format!("{of_program}took {instructions_then} instructions and {stack_then} bytes of stack, now {instructions} and {stack}"))
}

#[test]
fn no_chain_of_calls_takes_the_last_bytes_of_the_stack_on_the_oldest_kernel() {
    for (name, depth) in stack::depths(OBJECT) {
        println!("stack of {name}: {depth}");
        assert!(depth + FRAME_STEP <= MAX_STACK, "{name} takes {depth} bytes of {MAX_STACK}");
    }
}

/// Names of all programs.
fn programs() -> impl Iterator<Item = &'static str> {
    let successors = names::SUCCESSORS_IP.map(|(_, name)| name);
    [names::PROGRAM].into_iter().chain(names::SUCCESSORS).chain([names::PROGRAM_IP]).chain(successors)
}

#[test]
fn the_object_tells_nothing_about_the_machine_it_was_built_on() {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let workspace = root.strip_suffix("/tests").unwrap();
    assert!(!contains(OBJECT, workspace.as_bytes()), "the object names {workspace}");
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

#[test]
fn only_the_traced_object_has_anything_to_log_with() {
    assert!(contains(TRACED, b"AYA_LOGS"));
    assert!(!contains(OBJECT, b"AYA_LOG"), "the object of a release logs");
}

#[test]
fn a_traced_program_logs_each_verdict_of_the_level_chosen_at_load() {
    let policy = policies::policy(
        "[source]\nladder = false\nlimits = [\"3 packets/day\"]\n[[service]]\nname = \"dns\"\nmatch = { protocol = \"udp\", ports = [53] }\n",
    );
    let sender = Ipv4Addr::new(198, 51, 100, 7);
    let frame = Ipv4::from(sender).udp_frame(8);
    let traced = |verdict, reason| TracedVerdict {
        verdict,
        source: Some(sender.into()),
        service: 1,
        reason,
        fate: Fate::Decided,
        bytes: frame.len() as u64,
    };
    let passed = traced(Verdict::Pass, Reason::Conforming);
    let dropped = traced(Verdict::Drop, Reason::LimitPackets);
    let arp = TracedVerdict { source: None, service: 0, reason: Reason::Arp, bytes: 42, ..passed };
    for (level, expected) in [
        (TraceLevel::Debug, vec![passed, passed, passed, dropped, dropped, arp]),
        (TraceLevel::Warn, vec![dropped, dropped]),
    ] {
        let mut loaded = Loaded::traced(&policy, level);
        let told = Mutex::new(Vec::new());
        let mut log = loaded.verdicts(|verdict| told.lock().unwrap().push(verdict));
        for _ in 0..5 {
            loaded.run(&frame);
        }
        loaded.run(&ethernet(ARP, &[0; 28]));
        log.read();
        assert_eq!(*told.lock().unwrap(), expected, "{level:?}");
    }
}

#[test]
fn a_traced_program_names_the_sender_of_a_packet_that_was_answered() {
    let policy = policies::policy(
        "[source]\nladder = false\nlimits = [\"3 packets/day\"]\n[[service]]\nname = \"web\"\nmatch = { protocol = \"tcp\", ports = [80] }\non_limit = \"reject\"\nper_source = [\"1 packets/day\"]\n",
    );
    let mut loaded = Loaded::traced(&policy, TraceLevel::Info);
    let told = Mutex::new(Vec::new());
    let mut log = loaded.verdicts(|verdict| told.lock().unwrap().push(verdict));
    let sender = Ipv4Addr::new(198, 51, 100, 8);
    let frame = Ipv4::from(sender).tcp_frame(SYN);
    let verdicts: Vec<Verdict> = (0..2).map(|_| loaded.run(&frame)).collect();
    assert_eq!(verdicts, [Verdict::Pass, Verdict::Reply]);
    log.read();
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].source, told[0].fate), (Some(sender.into()), Fate::Rejected));
}

#[test]
fn maps_pinned_by_one_load_are_the_ones_the_next_load_uses() {
    let scratch = Scratch::new();
    let pins = PinDir::new(scratch.pin());
    let (_, mut first) = kernel::load(Some(&pins), 1_000).unwrap();
    let names_on_disk = || -> Vec<_> {
        fs::read_dir(pins.maps(Layout::current(1_000)))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    // The map with the policy is pinned beside the others, in one of two places: the policy in force stays in the other one until the array refers to the next.
    for (rate, inner) in [("7 packets/s", 1), ("8 packets/s", 2), ("9 packets/s", 2)] {
        first.set_policy(&policies::limits(&[rate])).unwrap();
        let (_, second) = kernel::load(Some(&pins), 1_000).unwrap();
        assert_eq!(second.policy(), first.policy());
        let names_on_disk = names_on_disk();
        assert_eq!(names_on_disk.len(), names::MAPS.len() + inner, "{names_on_disk:?}");
    }
}

/// The daemon writes these, and a program that is at work goes by them while the next one is loaded.
#[test]
fn loading_a_program_beside_one_at_work_leaves_the_express_lane_and_its_policy_as_they_are() {
    let scratch = Scratch::new();
    let pins = PinDir::new(scratch.pin());
    let layout = Layout::current(1_000);
    let switches = || -> Switches { variable(&pins.map(layout, names::SWITCHES)) };
    let copy = || -> Policy { variable(&pins.map(layout, names::EXPRESS)) };
    let (_, mut first) = kernel::load(Some(&pins), 1_000).unwrap();
    assert_eq!(switches().express, 0, "closed before there is a policy");
    first.set_policy(&policies::limits(&["100 packets/s burst 100"])).unwrap();
    let before = switches();
    assert_eq!(before.express, 1);
    let (_, _second) = kernel::load(Some(&pins), 1_000).unwrap();
    assert_eq!(switches(), before);
    assert!(copy() == *first.policy().unwrap(), "the copy is the policy in force");
    let tracked: [u64; CELL_BIT_WORDS] = variable(&pins.map(layout, names::TRACKED));
    assert!(tracked.iter().all(|word| *word == u64::MAX), "a cell that is tracked has its bit");
}

/// Entries from before there was a prefilter may be behind any cell, and no mark says so.
#[test]
fn a_policy_that_begins_a_prefilter_has_the_express_lane_look_behind_every_cell() {
    let scratch = Scratch::new();
    let pins = PinDir::new(scratch.pin());
    let path = pins.map(Layout::current(1_000), names::TRACKED);
    let (_, mut maps) = kernel::load(Some(&pins), 1_000).unwrap();
    let without = policies::source("gate = false\nladder = false\nlimits = [\"10 packets/s\"]");
    maps.set_policy(&without).unwrap();
    let mut bits: Array<MapData, [u64; CELL_BIT_WORDS]> =
        Map::Array(MapData::from_pin(&path).unwrap()).try_into().unwrap();
    bits.set(0, [0; CELL_BIT_WORDS], 0).unwrap();
    let next = policies::after(&["10 packets/s"], 2, Some(&without.policy));
    assert_ne!(next.policy.source.set.tracked_until_q8, 0, "it begins one");
    maps.set_policy(&next).unwrap();
    assert!(variable::<[u64; CELL_BIT_WORDS]>(&path).iter().all(|word| *word == u64::MAX));
}

/// Negative entries are a variable of the program, which `explain` reads beside the cell's bucket.
#[test]
fn the_daemon_reads_the_negative_entries_that_the_program_has_written() {
    let desired = policies::limits(&["80 packets/day burst 80"]);
    let mut loaded = Loaded::new(&desired);
    let source = Ipv4Addr::new(192, 0, 2, 7);
    // A negative entry is over after a quarter of a second, and a guest under emulation may need as long for the frame that has it written, or to read it. So it is
    // held against the time in which it was written, every tenth of a second.
    let mut begun_ns = probe::now_ns();
    while loaded.run(&Ipv4::from(source).udp_frame(8)) == Verdict::Pass {
        begun_ns = probe::now_ns();
    }
    let written: Vec<u64> = (begun_ns..=probe::now_ns()).step_by(100_000_000).map(gcra::time_q8).collect();
    let key = SourceKey::from_v4(u32::from_ne_bytes(source.octets()));
    let hash = prefilter::hash(key, desired.policy.prefilter.secret);
    let (_, maps) = loaded.parts();
    let [_tat, negative_entries @ ..] = maps.row(Row::Cell(prefilter::cell_index(hash))).unwrap().unwrap();
    let name = prefilter::negative_name(hash, desired.policy.generation);
    assert!(
        negative_entries
            .iter()
            .any(|word| written.iter().any(|now_q8| prefilter::denies(*word, name, *now_q8))),
        "{negative_entries:x?}"
    );
}

/// The value of a pinned variable.
fn variable<V: aya::Pod>(path: &Path) -> V {
    let map: Array<MapData, V> = Map::Array(MapData::from_pin(path).unwrap()).try_into().unwrap();
    map.get(&0, 0).unwrap()
}

#[test]
fn the_licence_lets_the_kernel_offer_its_helpers() {
    let mut loaded = Loaded::new(&policies::limits(&["1 packets/s"]));
    assert_eq!(loaded.xdp().info().unwrap().gpl_compatible(), Some(true));
}
