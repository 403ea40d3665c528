//! Setters of option and report structs, which have public fields but may get more of them.

/// Defines a setter for every field, with the field's name and type. A field without one does not
/// compile.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        impl $name {
            /// The names of the fields, so that whoever writes all of them out can test that none is missing.
            #[doc(hidden)]
            pub const FIELDS: &[&str] = &[$(stringify!($field)),*];

            $(
                #[doc = concat!("Sets the field `", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(self, $field: $type) -> Self {
                    let mut changed = self;
                    changed.$field = $field;
                    changed
                }
            )*
        }

        const _: fn($name) = |$name { $($field: _),* }| {};
    };
}
