//! `/proc/pressure/cpu`: how long tasks wait for a CPU. Since 5.13 it has a second line, `full`, which for CPUs says nothing.

use super::percent::Percent;

/// Parses the share of the last ten seconds in which some task waited for a CPU.
pub(super) fn parse(text: &str) -> Result<Percent, String> {
    let some =
        text.lines().find_map(|line| line.strip_prefix("some ")).ok_or("no line starts with \"some\"")?;
    let avg10 = some
        .split_whitespace()
        .find_map(|word| word.strip_prefix("avg10="))
        .ok_or("the line \"some\" has no avg10")?;
    avg10.parse().map_err(|()| format!("avg10 is {avg10:?}, where a percentage like 1.25 should be"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_over_ten_seconds_is_read_with_and_without_the_second_line() {
        let linux_5_4 = "some avg10=3.07 avg60=2.10 avg300=1.00 total=38263142\n";
        assert_eq!(parse(linux_5_4).unwrap().to_string(), "3.07 %");
        let linux_6_18 = "some avg10=54.51 avg60=44.15 avg300=63.24 total=10401459310\n\
                          full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(parse(linux_6_18).unwrap().to_string(), "54.51 %");
    }

    #[test]
    fn a_malformed_file_is_a_sentence() {
        for (text, sentence) in [
            ("", "no line starts with"),
            ("full avg10=0.00 avg60=0.00\n", "no line starts with"),
            ("some avg60=0.00\n", "has no avg10"),
            ("some avg10=lots\n", "avg10 is \"lots\""),
            ("some avg10=\n", "avg10 is \"\""),
        ] {
            assert!(parse(text).unwrap_err().contains(sentence), "{text:?}");
        }
    }
}
