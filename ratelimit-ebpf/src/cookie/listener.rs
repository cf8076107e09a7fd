//! What a listener asks of its connections, and the window scale that the kernel chooses from that.
//!
//! The kernel chooses a connection's window scale when the SYN comes, and a second time when the acknowledgement of a cookie comes, from the
//! listener's state at that time. The client only knows the scale in the answer. If the two differ, one side shifts by more than the other, and sends
//! more than the other has room for.

const LARGEST_SCALE: u32 = 14;

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieListener {
    space: u32,
    clamp: u32,
    largest_segment: u16,
}

impl CookieListener {
    /// A listener by its socket: bytes of its buffer that can be a window, whether somebody has set the buffer's size, and the largest window and
    /// the largest segment that were asked for, 0 for none.
    #[inline(always)]
    pub fn new(space: u32, locked: bool, clamp: u32, largest_segment: u16) -> Self {
        let clamp = if clamp == 0 { u32::MAX } else { clamp };
        // A buffer that grows by itself is no bound on the window.
        Self { space, clamp: if locked { clamp.min(space) } else { clamp }, largest_segment }
    }

    /// The window scale that the kernel will choose (`tcp_select_initial_window`). `of_host` is the scale that the largest buffers of the host need,
    /// and `mss` the MSS in the cookie.
    #[inline(always)]
    pub fn window_scale(&self, of_host: u8, mss: u16) -> u8 {
        // Compares scales instead of sizes, because the order is the same.
        let wanted = scale(self.window(mss)).max(u32::from(of_host));
        wanted.min(scale(self.clamp)) as u8
    }

    /// The largest window that there is room for at first, in bytes: whole segments.
    #[inline(always)]
    pub fn window(&self, mss: u16) -> u32 {
        let (space, mss) = (self.space.min(self.clamp), u32::from(mss).max(1));
        if space > mss { space - space % mss } else { space }
    }

    /// The MSS that the kernel announces, if segments could be as large as `largest`.
    #[inline(always)]
    pub fn segment(&self, largest: u16) -> u16 {
        if self.largest_segment == 0 { largest } else { largest.min(self.largest_segment) }
    }
}

/// The scale that a window of this size needs to fit into 16 bits, as the kernel computes it.
#[inline(always)]
fn scale(window: u32) -> u32 {
    (u32::BITS - 1 - (window | 1).leading_zeros()).saturating_sub(15).min(LARGEST_SCALE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_that_nobody_has_touched_has_the_scale_of_the_host() {
        let usual = CookieListener::new(65_536, false, 0, 0);
        assert_eq!([0, 7, 14].map(|of_host| usual.window_scale(of_host, 1460)), [0, 7, 14]);
        assert_eq!((usual.window(1460), usual.segment(1460)), (64_240, 1460));
    }

    #[test]
    fn a_buffer_that_somebody_set_bounds_the_scale_and_one_that_grows_does_not() {
        for (space, scale) in
            [(1_152, 0), (65_535, 0), (65_536, 1), (1 << 20, 5), (6 << 20, 7), (1 << 30, 14)]
        {
            assert_eq!(CookieListener::new(space, true, 0, 0).window_scale(7, 1460), scale, "{space}");
        }
        assert_eq!(CookieListener::new(1_152, false, 0, 0).window_scale(7, 1460), 7);
    }

    #[test]
    fn a_larger_buffer_than_the_host_hands_out_counts_in_whole_segments() {
        // 2^23 bytes need eight bits more than 16; the whole segments in them do not.
        assert_eq!(CookieListener::new(1 << 23, true, 0, 0).window_scale(6, 1460), 7);
        assert_eq!(CookieListener::new((1 << 23) + 1460, true, 0, 0).window_scale(6, 1460), 8);
        assert_eq!(CookieListener::new(u32::MAX, true, 0, 0).window_scale(0, 1), 14);
    }

    #[test]
    fn the_smaller_of_a_largest_window_and_a_set_buffer_counts() {
        assert_eq!(CookieListener::new(1 << 20, true, 1 << 17, 0).window_scale(7, 1460), 2);
        assert_eq!(CookieListener::new(1 << 17, true, 1 << 20, 0).window_scale(7, 1460), 2);
        assert_eq!(CookieListener::new(1 << 17, false, 1 << 20, 0).window_scale(7, 1460), 5);
        assert_eq!(CookieListener::new(65_536, false, 3_000, 0).window(1460), 2_920);
        assert_eq!(CookieListener::new(65_536, false, 1_000, 0).window(1460), 1_000);
        assert_eq!(CookieListener::new(0, true, 0, 0).window(0), 0);
    }

    #[test]
    fn a_largest_segment_is_announced_unless_the_interface_takes_less() {
        let segment = |asked, largest| CookieListener::new(65_536, false, 0, asked).segment(largest);
        assert_eq!((segment(0, 1460), segment(500, 1460), segment(9000, 1460)), (1460, 500, 1460));
    }
}
