//! `/proc/stat`: the time that each CPU spent on each kind of work, in ticks since the boot. Time in ksoftirqd counts as softirq there.

use super::percent::Percent;

/// The time of one CPU so far, in ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CpuTime {
    cpu: String,
    /// All time of the CPU, idle time included.
    total: u64,
    softirq: u64,
}

/// The number of columns that do not overlap: user, nice, system, idle, iowait, irq, softirq, steal. The columns of guests after them are contained in user and nice.
const DISTINCT: usize = 8;
const SOFTIRQ: usize = 6;
/// The name of the line that sums up all CPUs.
const TOGETHER: &str = "cpu";

/// Parses the time of each CPU; if the file has only the sum of all CPUs, that line alone.
pub(super) fn parse(text: &str) -> Result<Vec<CpuTime>, String> {
    let lines = text.lines().filter(|line| line.starts_with(TOGETHER));
    let mut cpus = lines.map(parse_line).collect::<Result<Vec<_>, _>>()?;
    if cpus.iter().any(|one| one.cpu != TOGETHER) {
        cpus.retain(|one| one.cpu != TOGETHER);
    }
    if cpus.is_empty() {
        return Err("no line starts with \"cpu\"".to_owned());
    }
    Ok(cpus)
}

fn parse_line(line: &str) -> Result<CpuTime, String> {
    let mut words = line.split_whitespace();
    let cpu = words.next().unwrap_or_default();
    let ticks = words
        .take(DISTINCT)
        .map(|word| {
            word.parse().map_err(|_| format!("{cpu} has {word:?}, where a number of ticks should be"))
        })
        .collect::<Result<Vec<u64>, _>>()?;
    let softirq = *ticks
        .get(SOFTIRQ)
        .ok_or_else(|| format!("{cpu} has {} numbers, softirq is the 7th", ticks.len()))?;
    let total = ticks.iter().fold(0, |sum: u64, one| sum.saturating_add(*one));
    Ok(CpuTime { cpu: cpu.to_owned(), total, softirq })
}

/// Returns the share of its time that the busiest CPU spent on softirqs; `None` if no time has passed.
pub(super) fn busiest(before: &[CpuTime], now: &[CpuTime]) -> Option<Percent> {
    // The kernel may correct idle time downwards, so a later count may be smaller.
    let spent = now.iter().filter_map(|now| {
        let before = before.iter().find(|before| before.cpu == now.cpu)?;
        Some((now.total.saturating_sub(before.total), now.softirq.saturating_sub(before.softirq)))
    });
    // As much time has passed for one CPU as for another, so the longest counts for all. A CPU that sleeps without ticks may not have accounted for
    // its idle time yet, and any softirq would be a large share of the little time it has.
    let (passed, softirq) =
        spent.fold((0, 0), |most: (u64, u64), one| (most.0.max(one.0), most.1.max(one.1)));
    Percent::of(softirq, passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  1960375 728274 960149 1460537 8270 0 155044 36501 0 0\n\
                          cpu0 999156 380234 456806 771230 4575 0 23662 20441 0 0\n\
                          cpu1 961219 348040 503343 689307 3695 0 131382 16060 0 0\n\
                          intr 118036419 0 9 0 0\nctxt 223412345\nbtime 1763200000\nprocesses 812345\n\
                          softirq 81234567 1 2 3 4 5 6 7 8 9 10\n";

    fn share(before: &str, now: &str) -> Option<String> {
        busiest(&parse(before).unwrap(), &parse(now).unwrap()).map(|share| share.to_string())
    }

    #[test]
    fn the_busiest_cpu_counts_and_not_the_average() {
        let now = BEFORE
            .replace("cpu0 999156 380234 456806 771230", "cpu0 999156 380234 456806 771330")
            .replace("689307 3695 0 131382", "689317 3695 0 131472");
        assert_eq!(share(BEFORE, &now).unwrap(), "90.00 %");
        assert_eq!(share(BEFORE, BEFORE), None, "no time has passed");
    }

    #[test]
    fn a_cpu_that_has_not_accounted_for_its_sleep_is_not_taken_for_a_busy_one() {
        let now = BEFORE
            .replace("cpu0 999156 380234 456806 771230", "cpu0 999156 380234 456806 771330")
            .replace("3695 0 131382", "3695 0 131384");
        assert_eq!(share(BEFORE, &now).unwrap(), "2.00 %");
    }

    #[test]
    fn counters_that_go_backwards_and_cpus_that_come_and_go_are_no_load() {
        let corrected = BEFORE.replace("771230 4575", "771330 4570").replace("689307 3695", "689300 3600");
        assert_eq!(share(BEFORE, &corrected).unwrap(), "0.00 %");
        let reset = BEFORE.replace("131382", "7").replace("771230", "771330");
        assert_eq!(share(BEFORE, &reset).unwrap(), "0.00 %");
        let third =
            BEFORE.replace("771230", "771330").replace("intr", "cpu2 1 1 1 1 1 1 5000000 1 0 0\nintr");
        assert_eq!(share(BEFORE, &third).unwrap(), "0.00 %", "it came");
        assert_eq!(share(&third, BEFORE), None, "it went, and no time has passed");
    }

    #[test]
    fn shapes_of_other_kernels_and_containers_are_read() {
        let (before, now) = ("cpu 0 0 0 100 0 0 0\n", "cpu 0 0 0 150 0 0 50\n");
        assert_eq!(share(before, now).unwrap(), "50.00 %", "one line, and no column after softirq");
        let guests = "cpu0 100 0 0 100 0 0 50 0 100 0 12 13\n";
        assert_eq!(
            share("cpu0 0 0 0 0 0 0 0 0 0 0\n", guests).unwrap(),
            "20.00 %",
            "guests are in user time"
        );
    }

    #[test]
    fn a_malformed_file_is_a_sentence() {
        for (text, sentence) in [
            ("", "no line starts with"),
            ("intr 1 2 3\n", "no line starts with"),
            ("cpu0 1 2 3\n", "cpu0 has 3 numbers"),
            ("cpu0 1 2 3 4 5 6 x 8\n", "cpu0 has \"x\""),
            ("cpu0 1 2 3 4 5 6 -7 8\n", "cpu0 has \"-7\""),
            ("cpu0 1 2 3 4 5 6 99999999999999999999 8\n", "where a number of ticks should be"),
        ] {
            assert!(parse(text).unwrap_err().contains(sentence), "{text:?}");
        }
        assert!(
            parse(&format!("cpu0 {0} {0} 0 0 0 0 1", u64::MAX)).is_ok(),
            "too much to add is not a panic"
        );
    }
}
