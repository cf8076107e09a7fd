//! The bytes of one frame, and the only unsafe access to them.
//!
//! A parser asks for a [`View`] of `N` bytes at an offset. That takes one bounds check; fields are then read
//! at offsets that the compiler proves to be inside. The verifier sees one comparison with the end
//! of the packet, then loads at constant offsets below it.
#![expect(unsafe_code, reason = "packet bytes are reached through pointers that the verifier checks")]

use core::marker::PhantomData;

/// The largest offset of a header in bytes. The verifier refuses packet pointers moved by more than 64 KiB
/// and needs to see the bound; the deepest chain that the parsers follow ends below 16 KiB.
pub const MAX_OFFSET: usize = 0x3fff;

/// The kind of an interface: what its frames begin with. Each program is for one kind, so in the kernel this is a constant
/// and costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Frames begin with an Ethernet header, perhaps with VLAN tags.
    Ethernet,
    /// Frames are IP packets without a header before them, as on tunnels.
    Ip,
}

/// One frame. Of a frame in several buffers, the bytes of the first one, which has the headers.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    start: usize,
    end: usize,
    len: u64,
    link: Link,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> Frame<'a> {
    /// A frame in ordinary memory, from an interface of this kind.
    pub fn new(link: Link, bytes: &'a [u8]) -> Self {
        let range = bytes.as_ptr_range();
        Self {
            start: range.start as usize,
            end: range.end as usize,
            len: bytes.len() as u64,
            link,
            bytes: PhantomData,
        }
    }

    /// A frame of several buffers: the bytes of the first one, and the length of all.
    pub fn with_len(link: Link, first: &'a [u8], len: u64) -> Self {
        Self { len, ..Self::new(link, first) }
    }

    /// The frame of a program run, if it cannot have more than one buffer.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn of_context(link: Link, ctx: &'a aya_ebpf::programs::XdpContext) -> Self {
        // The length is read a second time and volatile: an optimiser that sees where the length comes from drops bounds checks that
        // follow from it, and the verifier, which does not follow that reasoning, refuses the program.
        // SAFETY: the context is the kernel's and outlives the program run.
        let len = unsafe {
            (&raw const (*ctx.ctx).data_end).read_volatile() - (&raw const (*ctx.ctx).data).read_volatile()
        };
        Self { start: ctx.data(), end: ctx.data_end(), len: u64::from(len), link, bytes: PhantomData }
    }

    /// The frame of a program run, if it can have several buffers: the length covers all of them.
    ///
    /// # Minimum kernel version
    /// 5.18, for `bpf_xdp_get_buff_len`.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn of_context_frags(link: Link, ctx: &'a aya_ebpf::programs::XdpContext) -> Self {
        // SAFETY: the helper takes the context the kernel handed to the program and only reads it.
        let len = unsafe { aya_ebpf::helpers::bpf_xdp_get_buff_len(ctx.ctx) };
        Self { start: ctx.data(), end: ctx.data_end(), len, link, bytes: PhantomData }
    }

    /// The frame with pointers that are read from the context again.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn again(&self, ctx: &aya_ebpf::programs::XdpContext) -> Self {
        // SAFETY: as in `of_context`. Volatile, or the compiler would use the pointers that it has.
        let (start, end) = unsafe {
            ((&raw const (*ctx.ctx).data).read_volatile(), (&raw const (*ctx.ctx).data_end).read_volatile())
        };
        Self { start: start as usize, end: end as usize, ..*self }
    }

    /// The number of the interface that the frame came in by.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn interface(ctx: &aya_ebpf::programs::XdpContext) -> u32 {
        // SAFETY: the context is the kernel's.
        unsafe { (*ctx.ctx).ingress_ifindex }
    }

    /// The MTU of the interface that the frame came in by, if the kernel knows it.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn interface_mtu(ctx: &aya_ebpf::programs::XdpContext) -> Option<u32> {
        let mut mtu = 0;
        // SAFETY: the context is the kernel's; interface 0 is the one the packet came in by. Kernel 5.12.
        let answer = unsafe { aya_ebpf::helpers::bpf_check_mtu(ctx.ctx.cast(), 0, &raw mut mtu, 0, 0) };
        // The helper's answer about this frame is not needed; it stores the MTU in any case.
        if answer < 0 || mtu == 0 { None } else { Some(mtu) }
    }

    /// The kind of the interface: what stands before the IP header.
    #[inline(always)]
    pub fn link(&self) -> Link {
        self.link
    }

    /// Length of the whole frame in bytes: from the Ethernet header on, or from the IP header on if the link has no other.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A view of `N` bytes from offset `at`, if the first buffer has them.
    #[inline(always)]
    pub fn view<const N: usize>(&self, at: usize) -> Option<View<'a, N>> {
        if at > MAX_OFFSET {
            return None;
        }
        let start = self.start + at;
        if start + N > self.end {
            return None;
        }
        Some(View { start, bytes: PhantomData })
    }
}

/// `N` bytes that are known to be there.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, const N: usize> {
    start: usize,
    bytes: PhantomData<&'a [u8]>,
}

impl<const N: usize> View<'_, N> {
    /// The byte at `AT`.
    #[inline(always)]
    pub fn u8<const AT: usize>(&self) -> u8 {
        self.load::<u8, AT>()
    }

    /// The two bytes at `AT`, big endian.
    #[inline(always)]
    pub fn u16_be<const AT: usize>(&self) -> u16 {
        u16::from_be(self.load::<u16, AT>())
    }

    /// The two bytes at `AT` as they lie in memory.
    #[inline(always)]
    pub fn u16_ne<const AT: usize>(&self) -> u16 {
        self.load::<u16, AT>()
    }

    /// The four bytes at `AT`, big endian.
    #[inline(always)]
    pub fn u32_be<const AT: usize>(&self) -> u32 {
        u32::from_be(self.load::<u32, AT>())
    }

    /// The four bytes at `AT` as they lie in memory.
    #[inline(always)]
    pub fn u32_ne<const AT: usize>(&self) -> u32 {
        self.load::<u32, AT>()
    }

    /// The eight bytes at `AT` as they lie in memory.
    #[inline(always)]
    pub fn u64_ne<const AT: usize>(&self) -> u64 {
        self.load::<u64, AT>()
    }

    /// Calls `show` with each of the first `WORDS` four-byte words, as they lie in memory.
    #[inline(always)]
    pub fn u32s_ne<const WORDS: usize>(&self, mut show: impl FnMut(usize, u32)) {
        const { assert!(WORDS * size_of::<u32>() <= N, "words lie outside the view") };
        let mut index = 0;
        while index < WORDS {
            show(index, self.read((self.start + index * size_of::<u32>()) as *const u32));
            index += 1;
        }
    }

    #[inline(always)]
    fn load<T: Copy, const AT: usize>(&self) -> T {
        const { assert!(AT + size_of::<T>() <= N, "field lies outside the view") };
        self.read((self.start + AT) as *const T)
    }

    /// Reads an integer that one of the callers has found to be inside the view.
    #[inline(always)]
    fn read<T: Copy>(&self, field: *const T) -> T {
        // SAFETY: `Frame::view` found N bytes at `start`, the assertions of the callers keep the field inside them, and
        // T is only ever an integer. On BPF the load is declared aligned although it may not be: an align-1 load
        // would become one load per byte, and the verifier admits unaligned packet loads on every architecture
        // whose JIT does them well.
        unsafe { if cfg!(target_arch = "bpf") { field.read() } else { field.read_unaligned() } }
    }
}

/// A frame that can be written to.
#[derive(Debug)]
pub struct Canvas<'a> {
    start: usize,
    end: usize,
    bytes: PhantomData<&'a mut [u8]>,
}

/// Unsigned integers, for which every bit pattern is valid.
pub trait Word: Copy + sealed::Sealed {}
impl Word for u16 {}
impl Word for u32 {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u16 {}
    impl Sealed for u32 {}
}

impl<'a> Canvas<'a> {
    /// A frame in ordinary memory.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        let range = bytes.as_mut_ptr_range();
        Self { start: range.start as usize, end: range.end as usize, bytes: PhantomData }
    }

    /// The frame of a program run, for writing. Changing its length makes every earlier pointer invalid.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn of_context(ctx: &'a aya_ebpf::programs::XdpContext) -> Self {
        Self { start: ctx.data(), end: ctx.data_end(), bytes: PhantomData }
    }

    /// The frame, longer or shorter by `change` bytes; `None` if the driver has no room. The frame grows before its first byte, where
    /// every driver keeps room; behind the last byte some have next to none.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn resized(ctx: &'a aya_ebpf::programs::XdpContext, change: i32) -> Option<Self> {
        // SAFETY: the context is the kernel's. Earlier pointers into the frame are void now, and the verifier sees to it that
        // nobody uses one.
        let answer = unsafe {
            if change > 0 {
                aya_ebpf::helpers::bpf_xdp_adjust_head(ctx.ctx, -change)
            } else {
                aya_ebpf::helpers::bpf_xdp_adjust_tail(ctx.ctx, change)
            }
        };
        if answer == 0 { Some(Self::of_context(ctx)) } else { None }
    }

    /// Reads words from offset `at`, as they lie in memory.
    #[inline(always)]
    pub fn get<W: Word, const N: usize>(&self, at: usize) -> Option<[W; N]> {
        let place = self.place::<W, N>(at)? as *const W;
        // SAFETY: `place` found N words there. As in `View::load` for alignment.
        Some(core::array::from_fn(|i| unsafe {
            if cfg!(target_arch = "bpf") { place.add(i).read() } else { place.add(i).read_unaligned() }
        }))
    }

    /// Writes words at offset `at`; `word` returns the word of each index.
    #[inline(always)]
    pub fn put<W: Word, const N: usize>(&mut self, at: usize, word: impl Fn(usize) -> W) -> Option<()> {
        let place = self.place::<W, N>(at)? as *mut W;
        let mut i = 0;
        while i < N {
            // SAFETY: as in `get`; the frame is borrowed for writing.
            unsafe {
                if cfg!(target_arch = "bpf") {
                    place.add(i).write(word(i));
                } else {
                    place.add(i).write_unaligned(word(i));
                }
            }
            i += 1;
        }
        Some(())
    }

    #[inline(always)]
    fn place<W: Word, const N: usize>(&self, at: usize) -> Option<usize> {
        if at > MAX_OFFSET {
            return None;
        }
        let start = self.start + at;
        (start + size_of::<[W; N]>() <= self.end).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_several_buffers_is_as_long_as_all_of_them_and_shows_the_first() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        let frame = Frame::with_len(Link::Ip, &bytes, 9_000);
        assert_eq!((frame.len(), frame.is_empty(), frame.link()), (9_000, false, Link::Ip));
        assert!(Frame::new(Link::Ip, &[]).is_empty());
        assert_eq!(frame.view::<4>(4).unwrap().u32_be::<0>(), 0x0506_0708);
        assert_eq!(frame.view::<8>(0).unwrap().u16_be::<2>(), 0x0304);
        assert!(frame.view::<4>(5).is_none() && frame.view::<1>(8).is_none() && frame.view::<0>(8).is_some());
        let mut words = [0; 2];
        frame.view::<8>(0).unwrap().u32s_ne::<2>(|at, word| words[at] = word.to_be());
        assert_eq!(words, [0x0102_0304, 0x0506_0708]);
    }

    #[test]
    fn no_header_begins_further_than_the_verifier_follows() {
        let bytes = [7; MAX_OFFSET + 8];
        let frame = Frame::new(Link::Ip, &bytes);
        assert!(frame.view::<2>(MAX_OFFSET).is_some() && frame.view::<2>(MAX_OFFSET + 1).is_none());
        let mut bytes = bytes;
        let mut canvas = Canvas::new(&mut bytes);
        assert_eq!(canvas.get::<u16, 1>(MAX_OFFSET), Some([0x0707]));
        assert_eq!(canvas.get::<u16, 1>(MAX_OFFSET + 1), None);
        assert_eq!(canvas.put::<u32, 2>(0, |at| at as u32 + 1), Some(()));
        assert_eq!(canvas.get::<u32, 2>(0), Some([1, 2]));
        let mut few = [0; 6];
        let mut canvas = Canvas::new(&mut few);
        assert_eq!((canvas.put::<u32, 1>(2, |_| 9), canvas.put::<u32, 1>(3, |_| 9)), (Some(()), None));
    }
}
