//! Many CPUs on one source: what they admit together stays within the bound, counted by the program itself.

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Instant,
};

use ratelimit_common::abi::Reason;
use ratelimit_tests::{
    frames::{Ipv4, SYN},
    loaded::{self, Loaded},
    policies,
};

/// More threads than this machine has cores: they also interrupt each other.
const THREADS: u32 = 8;
const RUNS: u32 = 1_000_000;

/// Runs a frame on all threads at once and returns how long it took, in ns.
fn hammer(loaded: &mut Loaded, frame: &[u8]) -> u64 {
    hammer_each(loaded, |_, _| frame.to_vec())
}

/// Runs on each thread, on all at once, a frame for each portion of a thousand, and returns how long it took, in ns.
fn hammer_each(loaded: &mut Loaded, frame: impl Fn(u32, u32) -> Vec<u8> + Sync) -> u64 {
    let xdp = &*loaded.xdp();
    let start = Arc::new(Barrier::new(THREADS as usize));
    let began = Instant::now();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, frame) = (Arc::clone(&start), &frame);
            scope.spawn(move || {
                start.wait();
                // Small portions, so that the threads meet again and again.
                for portion in 0..RUNS / 1_000 {
                    loaded::run(xdp, &frame(thread, portion), 1_000);
                }
            });
        }
    });
    began.elapsed().as_nanos() as u64
}

/// What a daily rate adds in this time, rounded up.
fn refilled_per_day(per_day: u64, took_ns: u64) -> u64 {
    per_day * took_ns / 86_400_000_000_000 + 1
}

#[test]
fn a_burst_is_spent_once_however_many_cpus_ask_for_it() {
    // Large, so that the CPUs compete for it for a while.
    let burst = 4_000_000;
    let mut loaded = Loaded::new(&policies::limits(&[&format!("{burst} packets/day")[..]]));
    let took_ns = hammer(&mut loaded, &Ipv4::from([192, 0, 2, 1]).udp_frame(8));
    let admitted = loaded.count(Reason::Conforming);
    let bound = burst + refilled_per_day(burst, took_ns);
    assert!(admitted <= bound, "{admitted} admitted, the bound is {bound}");
    let offered = u64::from(THREADS * RUNS);
    let refused = loaded.count(Reason::LimitPackets) + loaded.count(Reason::Contended);
    assert_eq!(admitted + refused, offered, "every packet is counted once");
    // The only way to lose a token is to lose it to a CPU that succeeded instead.
    assert!(admitted >= burst - loaded.count(Reason::Contended), "{admitted} of {burst} admitted");
}

#[test]
fn a_rate_is_held_however_many_cpus_ask_for_it() {
    let (rate, burst) = (50_000, 1_000);
    let mut loaded = Loaded::new(&policies::limits(&[&format!("{rate} packets/s burst {burst}")[..]]));
    let took_ns = hammer(&mut loaded, &Ipv4::from([192, 0, 2, 1]).udp_frame(8));
    let admitted = loaded.count(Reason::Conforming);
    let bound = burst + rate * took_ns / 1_000_000_000 + 1;
    assert!(admitted <= bound, "{admitted} admitted, the bound is {bound}");
    assert!(loaded.count(Reason::LimitPackets) > 0, "the limit was never reached");
}

#[test]
fn with_several_limits_none_is_exceeded_by_any_number_of_cpus() {
    let (packets, syns) = (3_000_000, 2_000_000);
    let limits = [format!("{packets} packets/day"), format!("{syns} syns/day")];
    let mut loaded = Loaded::new(&policies::limits(&[&limits[0], &limits[1]]));
    let took_ns = hammer(&mut loaded, &Ipv4::from([192, 0, 2, 1]).tcp_frame(SYN));
    let admitted = loaded.count(Reason::Conforming);
    let bound = syns + refilled_per_day(syns, took_ns);
    assert!(admitted <= bound, "{admitted} admitted, the bound is {bound}");
    assert!(loaded.count(Reason::LimitSyns) > 0);
}

#[test]
fn the_first_packets_of_a_new_source_on_all_cpus_open_one_bucket() {
    // Every source is new, and every one is asked for by all threads at the same moment.
    let mut loaded = Loaded::with_sources(&policies::limits(&["1 packets/day"]), 65_536);
    let sources = 3_000_u32;
    let xdp = &*loaded.xdp();
    let barrier = Arc::new(Barrier::new(THREADS as usize));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let barrier = Arc::clone(&barrier);
            scope.spawn(move || {
                for source in 0..sources {
                    let frame = Ipv4::from(std::net::Ipv4Addr::from_bits(0x0a00_0000 + source)).udp_frame(8);
                    barrier.wait();
                    loaded::run(xdp, &frame, 1);
                }
            });
        }
    });
    assert_eq!(loaded.count(Reason::Conforming), u64::from(sources), "one packet a day each");
}

#[test]
fn a_total_is_held_however_many_cpus_serve_it_and_whoever_sends() {
    let total = 3_000_000;
    // Every other CPU serves a flood whose source is another all the time; the others one sender each, who gets an account: its cell does not refill,
    // so it is used up on a slow machine too.
    let policy = format!(
        "[source]\nlimits = [\"800000 packets/day\"]\nladder = false\n[[service]]\nname = \"dns\"\n\
         match = {{ protocol = \"udp\", ports = [53] }}\ntotal = [\"{total} packets/day\"]\n"
    );
    let from = |thread: u32, portion: u32| match thread % 2 {
        0 => Ipv4::from([192, 0, 2, thread as u8 + 1]).udp_frame(8),
        _ => Ipv4::from(std::net::Ipv4Addr::from_bits(0x0b00_0000 + thread * RUNS + portion)).udp_frame(8),
    };
    let mut loaded = Loaded::new(&policies::policy(&policy));
    let took_ns = hammer_each(&mut loaded, from);
    let admitted = loaded.count(Reason::Conforming);
    let bound = total + refilled_per_day(total, took_ns);
    assert!(admitted <= bound, "{admitted} admitted, the bound is {bound}");
    // Untracked sources get three quarters of the total, tracked sources all of it, less what CPUs hold unspent.
    assert!(admitted >= total * 9 / 10, "{admitted} of {total} admitted");
    assert!(loaded.count(Reason::ServiceTotal) > 0);
    let offered = u64::from(THREADS * RUNS);
    let counted: u64 = loaded.counters().iter().map(|(_, counter)| counter.packets).sum();
    assert_eq!(counted, offered, "every packet is counted once");
}
