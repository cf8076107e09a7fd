//! What the kernel is set to do with TCP. Read only: an operator's settings are the operator's.

use std::fs;

/// The settings that SYN cookies depend on, of the network namespace that the daemon is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSettings {
    /// `net.ipv4.tcp_syncookies`: only at 2 does a listener that is not overrun hand out cookies, and take them.
    pub syncookies: u64,
    /// `net.ipv4.tcp_timestamps`: at 1 each connection's timestamps start elsewhere, and where is the kernel's secret.
    pub timestamps: u64,
    /// Both `net.ipv4.tcp_window_scaling` and `net.ipv4.tcp_sack` are on.
    pub options: bool,
    /// The largest receive buffer.
    pub largest_buffer: u64,
}

/// Receive buffers where the kernel does not say: its own default.
const USUAL_BUFFER: u64 = 6_291_456;
const MAX_WINDOW_SCALE: u32 = 14;

impl TcpSettings {
    /// As they are now.
    pub fn read() -> Self {
        let largest = last("net/ipv4/tcp_rmem").unwrap_or(USUAL_BUFFER);
        Self {
            syncookies: last("net/ipv4/tcp_syncookies").unwrap_or(0),
            timestamps: last("net/ipv4/tcp_timestamps").unwrap_or(0),
            options: ["net/ipv4/tcp_window_scaling", "net/ipv4/tcp_sack"]
                .iter()
                .all(|name| last(name) == Some(1)),
            // Not to be seen in every namespace; below the other unless somebody raised it.
            largest_buffer: largest.max(last("net/core/rmem_max").unwrap_or(0)),
        }
    }

    /// The window scale of the kernel's own answers (`tcp_select_initial_window`), if cookies can carry options at all: their place
    /// is in the timestamp, and the kernel must look for them where we put them.
    pub fn window_scale(&self) -> Option<u8> {
        let scale = self.largest_buffer.max(1).ilog2().saturating_sub(15).min(MAX_WINDOW_SCALE);
        (self.timestamps == 2 && self.options).then_some(scale as u8)
    }
}

/// The last number of a setting.
pub(super) fn last(name: &str) -> Option<u64> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok()?.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_scale_is_the_kernels_and_only_without_timestamp_offsets() {
        let settings = |timestamps, options, largest_buffer| TcpSettings {
            syncookies: 2,
            timestamps,
            options,
            largest_buffer,
        };
        assert_eq!(settings(2, true, 6_291_456).window_scale(), Some(7));
        assert_eq!(settings(2, true, 33_554_432).window_scale(), Some(10));
        assert_eq!(settings(2, true, 65_535).window_scale(), Some(0));
        assert_eq!(settings(2, true, u64::MAX).window_scale(), Some(14));
        assert_eq!(settings(1, true, 6_291_456).window_scale(), None);
        assert_eq!(settings(2, false, 6_291_456).window_scale(), None);
    }
}
