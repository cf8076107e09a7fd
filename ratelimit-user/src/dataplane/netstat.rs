//! Reads counters of the kernel about TCP.

use std::fs;

/// Returns the acknowledgements with a cookie that the kernel has accepted in this process' network namespace.
pub fn cookies_received() -> Option<u64> {
    counter(&fs::read_to_string("/proc/self/net/netstat").ok()?, "TcpExt:", "SyncookiesRecv")
}

/// Reads one counter: names are in one line, numbers in the next, and both lines begin with the name of the group.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names.split_whitespace().position(|word| word == name)?;
    numbers.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_group_and_name() {
        let text = "TcpExt: SyncookiesSent SyncookiesRecv\nTcpExt: 7 9\nIpExt: SyncookiesRecv\nIpExt: 5\n";
        assert_eq!(counter(text, "TcpExt:", "SyncookiesRecv"), Some(9));
        assert_eq!(counter(text, "IpExt:", "SyncookiesRecv"), Some(5));
        assert_eq!(counter(text, "TcpExt:", "Other"), None);
        assert_eq!(counter("TcpExt: SyncookiesRecv\n", "TcpExt:", "SyncookiesRecv"), None);
        assert!(cookies_received().is_some(), "this kernel counts them");
    }
}
