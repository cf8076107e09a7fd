//! Tests of headroom with made-up readings, and of samples with made-up and real files.

use std::{fs, path::Path};

use proptest::prelude::*;

use super::*;

const CALM: HeadroomReading = HeadroomReading {
    cpu_pressure_percent: Some(Percent::new(5)),
    softirq_percent: Some(Percent::new(3)),
    dropped: Some(0),
    squeezed: Some(2),
    backlog: Some(10),
};
/// A reading whose values are all above the low mark and below the high mark.
const BETWEEN: HeadroomReading = HeadroomReading {
    cpu_pressure_percent: Some(Percent::new(40)),
    softirq_percent: Some(Percent::new(50)),
    dropped: Some(5),
    squeezed: Some(70),
    backlog: Some(400),
};
const STRAINED: HeadroomReading = HeadroomReading { backlog: Some(900), ..CALM };

fn after(headroom: Headroom, readings: &[HeadroomReading]) -> Headroom {
    readings.iter().fold(headroom, Headroom::after)
}

fn lost() -> Headroom {
    let lost = after(Headroom::default(), &[STRAINED; 2]);
    assert!(!lost.is_there());
    lost
}

#[test]
fn each_cause_alone_ends_headroom_and_is_named() {
    for (reading, reason) in [
        (
            HeadroomReading { cpu_pressure_percent: Some(Percent::new(50)), ..CALM },
            "tasks waited for a CPU 50.00 % of the time (headroom ends at 50 %)",
        ),
        (
            HeadroomReading { softirq_percent: Some(Percent::new(83)), ..CALM },
            "one CPU was busy with softirqs 83.00 % of the time (headroom ends at 70 %)",
        ),
        (
            HeadroomReading { dropped: Some(812), ..CALM },
            "812 received packets were dropped in a second (headroom ends at 10)",
        ),
        (
            HeadroomReading { squeezed: Some(100), ..CALM },
            "100 times in a second one CPU left packets waiting (headroom ends at 100)",
        ),
        (
            HeadroomReading { backlog: Some(500), ..CALM },
            "500 packets wait in the backlog of one CPU (headroom ends at 500)",
        ),
    ] {
        let once = after(Headroom::default(), &[CALM, reading]);
        assert!(once.is_there(), "one reading may be a hiccup: {reason}");
        let twice = after(once, &[reading]);
        assert_eq!((twice.reason(), twice.changes()), (Some(reason), 1));
    }
}

#[test]
fn several_causes_are_all_named() {
    let both = HeadroomReading { dropped: Some(10), ..STRAINED };
    let reason = after(Headroom::default(), &[both; 2]).reason().unwrap().to_owned();
    assert!(reason.starts_with("10 received packets") && reason.contains("; 900 packets wait"), "{reason}");
}

#[test]
fn it_comes_back_after_ten_calm_readings_and_not_before() {
    let nine = after(lost(), &[CALM; 9]);
    assert!(!nine.is_there());
    let ten = after(nine.clone(), &[CALM]);
    assert_eq!((ten.is_there(), ten.reason(), ten.changes()), (true, None, 2));
    let again = after(nine, &[BETWEEN, CALM]);
    assert!(!after(again.clone(), &[CALM; 8]).is_there(), "one that is not calm starts the count anew");
    assert!(after(again, &[CALM; 9]).is_there());
}

#[test]
fn a_strained_reading_now_and_then_changes_nothing() {
    let headroom = (0..100).fold(Headroom::default(), |headroom, _| after(headroom, &[STRAINED, CALM]));
    assert_eq!(headroom.changes(), 0);
    let headroom = (0..100).fold(lost(), |headroom, _| after(headroom, &[CALM, CALM, BETWEEN]));
    assert_eq!((headroom.is_there(), headroom.changes()), (false, 1));
}

#[test]
fn between_the_marks_it_stays_as_it_is() {
    assert!(after(Headroom::default(), &[BETWEEN; 100]).is_there());
    assert!(!after(lost(), &[BETWEEN; 100]).is_there());
}

#[test]
fn what_is_not_measured_does_not_count_as_long_as_something_is() {
    let only_backlog = HeadroomReading { backlog: Some(10), ..HeadroomReading::default() };
    assert!(after(Headroom::default(), &[only_backlog; 50]).is_there());
    assert!(after(lost(), &[only_backlog; 10]).is_there());
    let blind = after(lost(), &[HeadroomReading::default(); 50]);
    assert!(!blind.is_there(), "nothing says that it is back");
    let blind = after(Headroom::default(), &[CALM, HeadroomReading::default()]);
    assert!(blind.is_there(), "the first reading of an old kernel has nothing to compare with");
    let blind = after(blind, &[HeadroomReading::default()]);
    assert_eq!(blind.reason(), Some("nothing of the host's load can be measured"));
}

fn value(marks: reading::Mark) -> impl Strategy<Value = u64> {
    // Values around both marks, where headroom could flap.
    prop_oneof![
        Just(0),
        Just(marks.low.saturating_sub(1)),
        Just(marks.low),
        Just(marks.high - 1),
        Just(marks.high),
        0..marks.high * 2
    ]
}

fn any_reading() -> impl Strategy<Value = HeadroomReading> {
    let share = |mark| prop::option::of(value(mark).prop_map(|value| Percent::of(value, 10_000).unwrap()));
    let count = |mark| prop::option::of(value(mark));
    let shares = (share(reading::CPU_PRESSURE), share(reading::SOFTIRQ));
    let counts = (count(reading::DROPPED), count(reading::SQUEEZED), count(reading::BACKLOG));
    (shares, counts).prop_map(|((cpu_pressure_percent, softirq_percent), (dropped, squeezed, backlog))| {
        HeadroomReading { cpu_pressure_percent, softirq_percent, dropped, squeezed, backlog }
    })
}

/// Histories with runs of equal readings, so that headroom does change.
fn history() -> impl Strategy<Value = Vec<HeadroomReading>> {
    let one = prop_oneof![Just(CALM), Just(STRAINED), Just(BETWEEN), any_reading()];
    prop::collection::vec((one, 1_usize..14), 1..30)
        .prop_map(|runs| runs.into_iter().flat_map(|(one, times)| vec![one; times]).collect())
}

proptest! {
    #[test]
    fn it_is_lost_by_strained_readings_only_and_comes_back_by_calm_ones_only(history in history()) {
        let mut headroom = Headroom::default();
        for at in 0..history.len() {
            let before = headroom.is_there();
            headroom = headroom.after(&history[at]);
            let ended_by = |count: u32, kind: fn(&HeadroomReading) -> bool| {
                at + 1 >= count as usize && history[at + 1 - count as usize..=at].iter().all(kind)
            };
            let expected = match before {
                true => !ended_by(STRAINED_READINGS, |one| one.strain().is_some()),
                false => ended_by(CALM_READINGS, HeadroomReading::is_calm),
            };
            prop_assert_eq!(headroom.is_there(), expected, "reading {}", at);
            prop_assert_eq!(headroom.reason().is_none(), headroom.is_there());
        }
        prop_assert!(headroom.changes() <= 2 + 2 * history.len() as u64 / 12, "it flaps");
    }

    #[test]
    fn a_value_that_wavers_around_one_mark_changes_it_at_most_once(
        wavers in prop::collection::vec(0_u64..2, 1..200),
        mark in prop_oneof![Just(reading::BACKLOG.high), Just(reading::BACKLOG.low)],
        starts_lost: bool,
    ) {
        let start = if starts_lost { lost() } else { Headroom::default() };
        let readings: Vec<_> = wavers.iter().map(|above| HeadroomReading { backlog: Some(mark - 1 + above), ..CALM }).collect();
        prop_assert!(after(start.clone(), &readings).changes() <= start.changes() + 1);
    }

    #[test]
    fn no_bytes_in_the_files_make_it_panic(texts in prop::collection::vec("[a-f0-9=. \\n-]{0,60}|.{0,40}", 3)) {
        let _ = pressure::parse(&format!("some avg10={}", texts[0]));
        let _ = stat::parse(&format!("cpu{}", texts[1]));
        if let Ok(queues) = softnet::parse(&texts[2]) {
            let _ = softnet::losses(&queues, &queues);
        }
    }
}

/// A directory with files like the kernel's; dropping the value removes it.
struct Proc(std::path::PathBuf);

impl Proc {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ratelimit-headroom-{name}-{}", std::process::id()));
        for below in ["pressure", "net"] {
            fs::create_dir_all(dir.join(below)).unwrap();
        }
        Self(dir)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_sample_is_compared_with_the_one_before() {
    let proc = Proc::new("compared");
    proc.write("pressure/cpu", "some avg10=1.25 avg60=0.00 avg300=0.00 total=1\n");
    proc.write("stat", "cpu0 0 0 0 100 0 0 0 0 0 0\n");
    proc.write("net/softnet_stat", "1 fffffffe 3 0 0 0 0 0 0 0 0 4 0\n");
    let before = Sample::read(&proc.0);
    let first = before.since(None);
    assert_eq!(first.to_string(), "CPU pressure 1.25 %, backlog 4", "what counts up has to wait");
    proc.write("stat", "cpu0 0 0 0 175 0 0 25 0 0 0\n");
    proc.write("net/softnet_stat", "9 00000001 8 0 0 0 0 0 0 0 0 6 0\n");
    let now = Sample::read(&proc.0);
    assert_eq!(
        now.since(Some(&before)).to_string(),
        "CPU pressure 1.25 %, softirq 25.00 % of a CPU, 3 dropped, 5 squeezed, backlog 6"
    );
    assert_eq!(now.notes(), Vec::<String>::new());
}

#[test]
fn files_that_are_missing_or_malformed_are_noted_once_and_the_rest_counts() {
    let proc = Proc::new("malformed");
    proc.write("stat", "cpu0 1 2 3\n");
    proc.write("net/softnet_stat", "1 2 3 0 0 0 0 0 0 0 0\n");
    let before = Sample::read(&proc.0);
    let notes = before.notes().join("\n");
    for words in
        ["pressure/cpu: No such file", "psi=1", "stat: cpu0 has 3 numbers", "backlogs are not measured"]
    {
        assert!(notes.contains(words), "{words:?} is missing in {notes}");
    }
    assert_eq!(before.new_notes(None), before.notes());
    proc.write("stat", "cpu0 1 2\n");
    proc.write("net/softnet_stat", "\u{fffd}\n");
    let now = Sample::read(&proc.0);
    assert_eq!(now.notes().len(), 3);
    let new = now.new_notes(Some(&before));
    assert!(new.len() == 1 && new[0].starts_with("drops and backlogs"), "the others were known: {new:?}");
    assert_eq!(now.since(Some(&before)), HeadroomReading::default());
}

#[test]
fn this_kernels_own_files_are_understood() {
    let proc = Path::new("/proc");
    let before = Sample::read(proc);
    // Only PSI may be missing on a kernel that the daemon runs on.
    let notes: Vec<_> = before.notes().into_iter().filter(|note| !note.starts_with("CPU pressure")).collect();
    assert!(notes.is_empty(), "{notes:?}");
    let reading = Sample::read(proc).since(Some(&before));
    assert!(reading.backlog.is_some() && reading.squeezed.is_some(), "{reading}");
}
