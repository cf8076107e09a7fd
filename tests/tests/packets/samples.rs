//! Copies of frames that the loaded program makes while somebody looks.

use std::net::Ipv4Addr;

use aya::programs::{TestRun as _, TestRunOptions};
use ratelimit_common::abi::{Reason, Verdict};
use ratelimit_tests::{frames::Ipv4, loaded::Loaded, policies};
use ratelimit_user::{dataplane::samples::OpenSamples, stats::sampled::Sampled};

const SOURCE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const POLICY: &str = "[source]\nladder = false\nlimits = [\"3 packets/day\"]\n";

fn unread(open: &mut OpenSamples<'_>) -> Vec<Sampled> {
    let mut samples = Vec::new();
    assert_eq!(open.read(|header, bytes| samples.push(Sampled::of(header, bytes))), 0, "none is lost");
    samples
}

#[test]
fn every_packet_is_sampled_with_its_end_while_somebody_looks_and_none_before_or_after() {
    let mut loaded = Loaded::new(&policies::policy(POLICY));
    let mut samples = loaded.maps.take_samples().expect("the first who asks gets them");
    let frame = Ipv4::from(SOURCE).udp_frame(53);
    loaded.run(&frame);
    let mut open = samples.open().expect("buffers");
    assert_eq!(unread(&mut open), [], "nobody looked");
    let verdicts: Vec<Verdict> = (0..5).map(|_| loaded.run(&frame)).collect();
    let seen = unread(&mut open);
    assert_eq!(seen.iter().map(|sample| sample.verdict).collect::<Vec<_>>(), verdicts);
    let [passed, .., dropped] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((passed.reason, dropped.reason), (Reason::Conforming, Reason::LimitPackets));
    for sample in &seen {
        assert_eq!((sample.source, sample.port, sample.weight), (Some(SOURCE.into()), 53, 1));
        assert_eq!(sample.len as usize, frame.len());
    }
    drop(open);
    loaded.run(&frame);
    let mut open = samples.open().expect("buffers again");
    assert_eq!(unread(&mut open), [], "nobody looked in between");
    loaded.run(&frame);
    assert_eq!(unread(&mut open).len(), 1, "and somebody looks again");
}

/// Frames of one round: short, so that most rounds meet no other work of the machine.
const ROUND: u32 = 20_000;
/// How many pairs of rounds are compared.
const PAIRS: u32 = 600;
/// Rounds of an epoch: at a tenth of a microsecond a frame, that makes a tenth of a second.
const EPOCH_ROUNDS: u32 = 50;

fn nanoseconds(loaded: &mut Loaded, frame: &[u8]) -> f64 {
    let options = TestRunOptions { data_in: Some(frame), repeat: ROUND, ..TestRunOptions::default() };
    loaded.xdp().test_run(options).expect("BPF_PROG_TEST_RUN").duration.as_nanos() as f64
}

/// The mean of the values between two quartiles of a sorted list: the kernel counts in whole nanoseconds, and this does not.
fn middle(sorted: &[f64]) -> f64 {
    let half = &sorted[sorted.len() / 4..sorted.len() * 3 / 4];
    half.iter().sum::<f64>() / half.len() as f64
}

#[test]
#[ignore = "a measurement, not a check: it prints what a look costs a packet"]
fn what_a_look_costs_a_packet() {
    for (what, policy) in
        [("is refused", POLICY), ("passes", "[source]\nlimits = [\"10000000 packets/s burst 10000000\"]\n")]
    {
        let policy = policies::policy(policy);
        let frame = Ipv4::from(SOURCE).udp_frame(53);
        // The program that is looked at lies elsewhere in memory than the other one, so they change places halfway.
        let mut programs = [Loaded::new(&policy), Loaded::new(&policy)];
        let (mut nobody, mut more) = (Vec::new(), Vec::new());
        for looked_at in [0, 1] {
            let mut samples = programs[looked_at].maps.take_samples().expect("the first who asks gets them");
            let mut open = samples.open().expect("buffers");
            for pair in 0..PAIRS / 2 + 4 * EPOCH_ROUNDS {
                let without = nanoseconds(&mut programs[1 - looked_at], &frame);
                let with = nanoseconds(&mut programs[looked_at], &frame);
                if pair % EPOCH_ROUNDS == EPOCH_ROUNDS - 1 {
                    open.begin_epoch().expect("an epoch");
                    open.read(|_, _| {});
                }
                // In the first epochs the sampler finds its pace.
                if pair >= 4 * EPOCH_ROUNDS {
                    nobody.push(without);
                    more.push(with - without);
                }
            }
        }
        nobody.sort_by(f64::total_cmp);
        more.sort_by(f64::total_cmp);
        let quartile = |part: usize| more[more.len() * part / 4];
        println!(
            "a packet that {what}: {:.1} ns when nobody looks; a look adds {:.1} ns (quartiles {}, {}, {}; {} pairs of {ROUND} packets)",
            middle(&nobody),
            middle(&more),
            quartile(1),
            quartile(2),
            quartile(3),
            more.len()
        );
    }
}
