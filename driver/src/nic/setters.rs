//! Setters of configurations: consuming methods, each of its field's name.

/// Gives a configuration one setter per field, so that a field can be added without breaking
/// programs. The documentation of each setter is written in front of its field.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($config:ident { $($(#[$doc:meta])+ $field:ident: $type:ty,)+ }) => {
        /// Setters, one for each field, whose documentation has the details.
        impl $config {
            $(
                $(#[$doc])+
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}
