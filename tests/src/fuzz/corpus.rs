//! The fuzz targets, over their corpus and over mutations of it that are the same every time. `cargo xtask fuzz` goes further.

use std::{fs, path::Path, time::Duration};

use super::{NEXT, Target};
use fastrand::Rng;
use rustix::time::{ClockId, clock_gettime};

/// Mutations of the inputs of a corpus, all together.
const MUTATIONS: usize = 4000;
/// One input must not keep anybody waiting. Time of the CPU counts, because the machine may be busy with something else.
const PATIENCE: Duration = Duration::from_secs(5);

fn corpus(target: Target) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name());
    let mut inputs: Vec<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), fs::read(&path).unwrap()))
        .collect();
    inputs.sort();
    inputs
}

/// The inputs of a corpus, without their names.
pub(super) fn inputs(target: Target) -> impl Iterator<Item = Vec<u8>> {
    corpus(target).into_iter().map(|(_, input)| input)
}

/// Runs one input; says which if it fails.
fn try_input(target: Target, what: &str, input: &[u8]) {
    let began = worked();
    let outcome = std::panic::catch_unwind(|| target.run(input));
    let text = String::from_utf8_lossy(input);
    assert!(outcome.is_ok(), "{} broke with {what}:\n{text}", target.name());
    let took = worked() - began;
    assert!(took < PATIENCE, "{} took {took:?} for {what}:\n{text}", target.name());
}

/// How long this thread has had a CPU.
fn worked() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("a time that has passed")
}

fn smoke(target: Target) {
    let inputs = corpus(target);
    assert!(inputs.len() >= 5, "a corpus of {}", inputs.len());
    let mut rng = Rng::with_seed(0x5eed);
    for (name, input) in &inputs {
        try_input(target, name, input);
        for number in 0..MUTATIONS / inputs.len() {
            let mut mutated = input.clone();
            for _ in 0..rng.usize(1..5) {
                mutate(&mut rng, &mut mutated, &inputs);
            }
            try_input(target, &format!("mutation {number} of {name}"), &mutated);
        }
    }
}

/// One change: of a byte or a line, by something of the same text or of another one.
fn mutate(rng: &mut Rng, input: &mut Vec<u8>, corpus: &[(String, Vec<u8>)]) {
    let at = rng.usize(..=input.len());
    let end = rng.usize(at..=input.len().min(at + 20));
    match rng.u8(..8) {
        0 => drop(input.drain(at..end)),
        1 => drop(input.splice(at..at, [rng.u8(..)])),
        2 if at < input.len() => input[at] ^= 1 << rng.u8(..8),
        3 => {
            let piece = input[at..end].to_vec();
            let to = rng.usize(..=input.len());
            drop(input.splice(to..to, piece));
        }
        4 => {
            // The text again, as the one that follows.
            let again = [NEXT.as_bytes(), input].concat();
            input.extend(again);
        }
        kind => {
            // Whole lines, which keep the rest in order.
            let mut lines: Vec<Vec<u8>> =
                input.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            let (_, other) = &corpus[rng.usize(..corpus.len())];
            let others: Vec<&[u8]> = other.split_inclusive(|byte| *byte == b'\n').collect();
            if lines.is_empty() || others.is_empty() {
                return;
            }
            let (line, from) = (rng.usize(..lines.len()), rng.usize(..lines.len()));
            match kind {
                5 => drop(lines.remove(line)),
                6 => lines.insert(line, others[rng.usize(..others.len())].to_vec()),
                _ => lines.swap(line, from),
            }
            *input = lines.concat();
        }
    }
}

#[test]
fn no_bytes_break_the_policy_reader_and_what_it_accepts_compiles() {
    smoke(Target::Policy);
}

#[test]
fn no_bytes_break_the_control_protocol() {
    smoke(Target::Protocol);
}

#[test]
fn no_text_breaks_rates_lifetimes_or_prefixes() {
    smoke(Target::Text);
}

#[test]
fn no_bytes_break_the_reader_of_redis_requests() {
    smoke(Target::Resp);
}

#[test]
fn every_frame_is_counted_once_whatever_is_in_it() {
    smoke(Target::Packets);
}

#[test]
fn whoever_is_answered_has_asked_and_a_marked_packet_is_the_packet() {
    smoke(Target::Answers);
}

#[test]
fn no_bytes_break_the_reader_of_captures() {
    smoke(Target::Capture);
}

#[test]
fn no_bytes_break_the_readers_of_questions() {
    smoke(Target::Http);
    smoke(Target::Grpc);
}

#[test]
fn no_bytes_break_the_readers_of_replies_and_of_the_state_directory() {
    smoke(Target::Store);
    smoke(Target::State);
}

#[test]
fn nothing_that_a_front_process_says_breaks_the_daemon_that_reads_it() {
    smoke(Target::Front);
}
