//! Reads the kernel's settings for TCP. They are never written, because they belong to the operator.

use std::fs;

/// The settings that SYN cookies depend on, of the network namespace that the daemon is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSettings {
    /// `net.ipv4.tcp_syncookies`: only at 2 does a listener that is not overrun send and accept cookies.
    pub syncookies: u64,
    /// `net.ipv4.tcp_timestamps`: at 1 the timestamps of each connection start at an offset that only the kernel knows.
    pub timestamps: u64,
    /// Whether both `net.ipv4.tcp_window_scaling` and `net.ipv4.tcp_sack` are on.
    pub options: bool,
    /// The largest receive buffer in bytes.
    pub largest_buffer: u64,
}

/// The kernel's default for the largest receive buffer, in bytes, used if the setting cannot be read.
const USUAL_BUFFER: u64 = 6_291_456;
const MAX_WINDOW_SCALE: u32 = 14;

impl TcpSettings {
    /// Reads the settings as they are now.
    pub fn read() -> Self {
        let largest = last("net/ipv4/tcp_rmem").unwrap_or(USUAL_BUFFER);
        Self {
            syncookies: last("net/ipv4/tcp_syncookies").unwrap_or(0),
            timestamps: last("net/ipv4/tcp_timestamps").unwrap_or(0),
            options: ["net/ipv4/tcp_window_scaling", "net/ipv4/tcp_sack"]
                .iter()
                .all(|name| last(name) == Some(1)),
            // `rmem_max` is not visible in every namespace; it is below `tcp_rmem` unless an operator raised it.
            largest_buffer: largest.max(last("net/core/rmem_max").unwrap_or(0)),
        }
    }

    /// Returns the window scale of the kernel's own answers (`tcp_select_initial_window`), if cookies can carry options at all: options
    /// are in the timestamp, which must start without the kernel's secret offset.
    pub fn window_scale(&self) -> Option<u8> {
        let scale = self.largest_buffer.max(1).ilog2().saturating_sub(15).min(MAX_WINDOW_SCALE);
        (self.timestamps == 2 && self.options).then_some(scale as u8)
    }
}

/// Reads the last number of a setting.
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
