//! Setters of configurations: consuming methods, each of its field's name.

/// Gives a configuration one setter per field, so that a field can be added without breaking programs.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($config:ident { $($field:ident: $type:ty,)+ }) => {
        /// Setters, one for each field, which tells what it means.
        impl $config {
            $(
                #[doc = concat!("The same with another `", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}
