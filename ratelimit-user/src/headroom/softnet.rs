//! `/proc/net/softnet_stat`: a line per CPU that is online, numbers of 32 bits in hexadecimal.
//!
//! ```text
//! 0 processed  1 dropped  2 time_squeeze  3-8 zero  9 received_rps  10 flow_limit     always
//! 11 backlog  12 CPU                                                                 since 5.10
//! 13 and 14, the two parts of the backlog                                            since 6.4
//! ```

/// The counters of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SoftnetQueue {
    /// The number of the CPU, or of its line where the kernel does not show the CPU.
    cpu: u32,
    dropped: u32,
    squeezed: u32,
    backlog: Option<u32>,
}

/// Packets dropped and rounds squeezed between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    /// Packets that all CPUs dropped.
    pub(super) dropped: u64,
    /// Squeezes of the CPU that had the most.
    pub(super) squeezed: u64,
}

const DROPPED: usize = 1;
const SQUEEZED: usize = 2;
const BACKLOG: usize = 11;
const CPU: usize = 12;

/// Parses the file into one queue per line.
pub(super) fn parse(text: &str) -> Result<Vec<SoftnetQueue>, String> {
    let queues = text
        .lines()
        .enumerate()
        .map(|(at, line)| parse_line(at, line).map_err(|problem| format!("line {} {problem}", at + 1)))
        .collect::<Result<Vec<_>, _>>()?;
    if queues.is_empty() {
        return Err("it is empty, where a line per CPU should be".to_owned());
    }
    Ok(queues)
}

fn parse_line(at: usize, line: &str) -> Result<SoftnetQueue, String> {
    let number = |word| {
        u32::from_str_radix(word, 16)
            .map_err(|_| format!("has {word:?}, where a hexadecimal number of 32 bits should be"))
    };
    let columns = line.split_whitespace().map(number).collect::<Result<Vec<_>, _>>()?;
    if columns.len() <= SQUEEZED {
        return Err(format!("has {} numbers, time_squeeze is the 3rd", columns.len()));
    }
    Ok(SoftnetQueue {
        cpu: columns.get(CPU).copied().unwrap_or(at as u32),
        dropped: columns[DROPPED],
        squeezed: columns[SQUEEZED],
        backlog: columns.get(BACKLOG).copied(),
    })
}

/// Returns the losses between two samples; `None` if a CPU has come or gone, because lines may belong to other CPUs then.
pub(super) fn losses(before: &[SoftnetQueue], now: &[SoftnetQueue]) -> Option<Losses> {
    if before.len() != now.len() {
        return None;
    }
    let mut losses = Losses::default();
    for now in now {
        let before = before.iter().find(|before| before.cpu == now.cpu)?;
        // Counters start again at zero after 2^32.
        losses.dropped += u64::from(now.dropped.wrapping_sub(before.dropped));
        losses.squeezed = losses.squeezed.max(now.squeezed.wrapping_sub(before.squeezed).into());
    }
    Some(losses)
}

/// Returns the longest backlog in packets; `None` on kernels that do not show it.
pub(super) fn longest_backlog(queues: &[SoftnetQueue]) -> Option<u64> {
    queues.iter().filter_map(|queue| queue.backlog).max().map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of kernels 4.18 to 5.9, 5.10 to 6.3 (CPU 1 is offline), and 6.4 or later.
    const LINUX_5_4: &str = "\
6dcad223 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
6f0e1565 00000003 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
";
    const LINUX_5_15: &str = "\
0a1b2c3d 00000000 00000010 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 0000001f 00000000
0b1b2c3d fffffff0 00000020 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 000003e8 00000002
";
    const LINUX_6_18: &str = "\
11b2148b 00000000 000000b7 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
5c42c686 00000000 000006d6 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000007 00000001 00000003 00000004
";

    fn backlog(text: &str) -> Option<u64> {
        longest_backlog(&parse(text).unwrap())
    }

    fn lost(before: &str, now: &str) -> Option<(u64, u64)> {
        let losses = losses(&parse(before).unwrap(), &parse(now).unwrap())?;
        Some((losses.dropped, losses.squeezed))
    }

    #[test]
    fn the_longest_backlog_is_read_where_the_kernel_shows_it() {
        assert_eq!(backlog(LINUX_5_4), None);
        assert_eq!(backlog(LINUX_5_15), Some(1_000));
        assert_eq!(backlog(LINUX_6_18), Some(7));
    }

    #[test]
    fn drops_are_those_of_all_cpus_and_squeezes_those_of_one() {
        let now = LINUX_6_18
            .replace("11b2148b 00000000 000000b7", "11b2148b 00000005 000000bb")
            .replace("5c42c686 00000000 000006d6", "5c42c686 00000006 000006d9");
        assert_eq!(lost(LINUX_6_18, &now), Some((11, 4)));
        assert_eq!(lost(LINUX_5_4, &LINUX_5_4.replace("00000003", "00000004")), Some((1, 0)));
        for text in [LINUX_5_4, LINUX_5_15, LINUX_6_18] {
            assert_eq!(lost(text, text), Some((0, 0)));
        }
    }

    #[test]
    fn counters_that_start_again_at_zero_have_counted_on() {
        assert_eq!(lost(LINUX_5_15, &LINUX_5_15.replace("fffffff0", "00000004")), Some((20, 0)));
    }

    #[test]
    fn a_cpu_that_comes_or_goes_is_not_a_loss() {
        let (first, second) = LINUX_6_18.split_once('\n').unwrap();
        assert_eq!(lost(LINUX_6_18, first), None);
        assert_eq!(lost(second, LINUX_6_18), None);
        assert_eq!(lost(first, second), None, "one came and one went");
        let swapped = format!("{second}{first}\n");
        assert_eq!(lost(LINUX_6_18, &swapped), Some((0, 0)), "lines are known by their CPU");
    }

    #[test]
    fn a_malformed_file_is_a_sentence() {
        for (text, sentence) in [
            ("", "it is empty"),
            ("0 0\n", "line 1 has 2 numbers"),
            ("0 0 0\n\n", "line 2 has 0 numbers"),
            ("0 0 0\n0 zz 0\n", "line 2 has \"zz\""),
            ("0 0 123456789\n", "32 bits"),
            ("\0\0\0", "line 1 has"),
        ] {
            assert!(parse(text).unwrap_err().contains(sentence), "{text:?}: {:?}", parse(text));
        }
    }
}
