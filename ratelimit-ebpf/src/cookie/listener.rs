//! What a listener asks of its connections, and what the kernel makes of it.
//!
//! The kernel chooses a connection's window scale when the SYN comes, and a second time when the acknowledgement of a cookie does, from the
//! listener as it is then. The client only knows what the answer said. If the two differ, one side shifts by more than the other, and sends
//! what the other has no room for.

const LARGEST_SCALE: u32 = 14;

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieListener {
    space: u32,
    clamp: u32,
    largest_segment: u16,
}

impl CookieListener {
    /// From what the socket says: bytes of its buffer that can be a window, whether somebody has set that buffer, the largest window and
    /// the largest segment that were asked for, 0 for none.
    #[inline(always)]
    pub fn new(space: u32, locked: bool, clamp: u32, largest_segment: u16) -> Self {
        let clamp = if clamp == 0 { u32::MAX } else { clamp };
        // A buffer that grows by itself is no bound.
        Self { space, clamp: if locked { clamp.min(space) } else { clamp }, largest_segment }
    }

    /// The window scale that the kernel will choose (`tcp_select_initial_window`). `of_host` is what the largest buffers of the host ask
    /// for, and `mss` what the cookie carries.
    #[inline(always)]
    pub fn window_scale(&self, of_host: u8, mss: u16) -> u8 {
        // Scales instead of sizes: which of two is larger is the same for both.
        let wanted = scale(self.window(mss)).max(u32::from(of_host));
        wanted.min(scale(self.clamp)) as u8
    }

    /// The largest window that there is room for at first: whole segments.
    #[inline(always)]
    pub fn window(&self, mss: u16) -> u32 {
        let (space, mss) = (self.space.min(self.clamp), u32::from(mss).max(1));
        if space > mss { space - space % mss } else { space }
    }

    /// What the kernel announces of segments that could be as large as this.
    #[inline(always)]
    pub fn segment(&self, largest: u16) -> u16 {
        if self.largest_segment == 0 { largest } else { largest.min(self.largest_segment) }
    }
}

/// How far a window of this size has to be shifted to be said in sixteen bits, as the kernel counts.
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
        // 2^23 bytes are eight bits more than fit, whole segments of it are not.
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
