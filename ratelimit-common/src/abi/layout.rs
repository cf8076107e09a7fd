//! The macro behind every boundary type: `repr(C)`, a stated size, and no padding, all checked by the
//! compiler on whichever target is being built.
//!
//! Padding matters twice: uninitialised bytes must not reach the kernel (it copies keys bytewise, so
//! padding would make equal keys differ), and a field that moves would be read as another.

/// Declares a type shared with the kernel.
///
/// ```
/// ratelimit_common::abi_struct! {
///     /// Two words, sixteen bytes.
///     pub struct Fits: 16 {
///         /// First word.
///         pub a: u64,
///         /// Second word.
///         pub b: u64,
///     }
/// }
/// ```
///
/// A hole between fields does not compile, although the stated size is the real one:
/// ```compile_fail
/// ratelimit_common::abi_struct! {
///     /// Seven bytes of padding after `a`.
///     pub struct Padded: 16 {
///         /// One byte.
///         pub a: u8,
///         /// Aligned to eight.
///         pub b: u64,
///     }
/// }
/// ```
///
/// Nor does a type whose size drifted from the one stated:
/// ```compile_fail
/// ratelimit_common::abi_struct! {
///     /// Stated as eight, is sixteen.
///     pub struct Drifted: 8 {
///         /// First word.
///         pub a: u64,
///         /// Second word.
///         pub b: u64,
///     }
/// }
/// ```
#[macro_export]
macro_rules! abi_struct {
    (
        $(#[$attr:meta])*
        pub struct $name:ident: $size:literal {
            $( $(#[$field_attr:meta])* pub $field:ident: $ty:ty, )+
        }
    ) => {
        $(#[$attr])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_attr])* pub $field: $ty, )+
        }

        impl $name {
            /// The declaration as text, from which the ABI fingerprint is computed.
            pub const LAYOUT: &'static str =
                stringify!($name $size { $( $field: $ty, )+ });
        }

        const _: () = {
            assert!(size_of::<$name>() == $size, "size differs from the one stated");
            assert!(
                size_of::<$name>() == 0 $( + size_of::<$ty>() )+,
                "the compiler would insert padding: reorder or add explicit fields"
            );
            assert!(align_of::<$name>() <= 8, "maps align values to eight bytes");
        };

        // SAFETY: repr(C), Copy, and free of padding by the assertions above; every field is an integer,
        // an array of integers or another such type, so all bit patterns are valid.
        #[cfg(feature = "aya")]
        #[expect(unsafe_code, reason = "aya's marker trait; the assertions above prove what it asserts")]
        unsafe impl aya::Pod for $name {}
    };
}

/// Folds declarations into one fingerprint (FNV-1a, 64 bits).
pub(super) const fn fold(layouts: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < layouts.len() {
        let bytes = layouts[i].as_bytes();
        let mut j = 0;
        while j < bytes.len() {
            // `stringify!` leaves white space to the compiler version; the fingerprint must not depend on it.
            if !bytes[j].is_ascii_whitespace() {
                hash = (hash ^ bytes[j] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            }
            j += 1;
        }
        i += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_that_of_all_characters_but_white_space() {
        // A value published by the authors of FNV.
        assert_eq!(fold(&["foobar"]), 0x8594_4171_f739_67e8);
        assert_eq!(fold(&["foo", " b\nar\t"]), fold(&["foobar"]));
        assert_ne!(fold(&["foo", "rab"]), fold(&["foobar"]));
        assert_eq!(fold(&[]), 0xcbf2_9ce4_8422_2325);
    }
}
