//! Counters by name.

/// Gives a structure of counters their names. One that is left out does not compile.
#[macro_export]
#[doc(hidden)]
macro_rules! named_counters {
    ($counters:ident { $($field:ident),+ $(,)? }) => {
        impl $counters {
            /// The names of all of them.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];

            /// Their values, in the order of the names.
            pub fn values(&self) -> [u64; Self::NAMES.len()] {
                let Self { $($field),+ } = *self;
                [$($field),+]
            }
        }

        impl std::iter::Sum for $counters {
            fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
                each.fold(Self::default(), |sum, one| Self {
                    $($field: sum.$field + one.$field),+
                })
            }
        }
    };
}
