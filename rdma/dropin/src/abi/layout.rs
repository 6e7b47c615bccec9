//! Structs of C with their sizes and offsets, which are checked against the numbers at compile
//! time, and against the headers by a test.

/// A struct as the headers have it.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Its name after `struct`.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Fields as an expression of C, and their offsets in bytes.
    pub fields: &'static [(&'static str, usize)],
}

/// A struct of C of which all bytes may be 0.
pub trait Zeroed: Copy {
    /// A struct of zeros: no flags, null pointers, no functions.
    fn zeroed() -> Self;
}

/// Name of a field in the headers: the field's own, unless another is given.
macro_rules! c_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $c:literal) => {
        $c
    };
}

/// Structs of C: `name size { offset field: type, }`. A field whose name differs in the headers has
/// that name after `=`.
macro_rules! c_structs {
    ($($(#[$doc:meta])* $name:ident $size:literal {
        $($offset:literal $field:ident $(= $c:literal)?: $type:ty,)*
    })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name { $(pub $field: $type,)* }

            const _: () = {
                assert!(size_of::<$name>() == $size);
                $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
            };

            impl Zeroed for $name {
                fn zeroed() -> Self {
                    // SAFETY: its fields are integers, pointers that may be null, and functions
                    // that may be missing.
                    unsafe { std::mem::zeroed() }
                }
            }
        )*

        /// The structs of this module.
        pub const LAYOUTS: &[Layout] = &[$(Layout {
            name: stringify!($name),
            size: $size,
            fields: &[$((c_name!($field $($c)?), $offset),)*],
        },)*];
    };
}

pub(super) use {c_name, c_structs};
