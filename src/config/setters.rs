//! Setters of structs to which fields may be added.

/// Defines a setter for each public field of a struct that may get further fields, so that other crates cannot write it as an expression.
/// The setters are const if `const` stands before the type. That is possible only if no field needs to be dropped.
macro_rules! setters {
    (const $type:ident $(<$life:lifetime>)? { $($setters:tt)+ }) => {
        impl$(<$life>)? $type$(<$life>)? { setters! { [const] $($setters)+ } }
    };
    ($type:ident { $($setters:tt)+ }) => {
        impl $type { setters! { [] $($setters)+ } }
    };
    ($const:tt $($setter:ident($field:ident: $value:ty),)+) => {
        $(setters! { @ $const $setter $field $value })+
    };
    (@ [$($const:tt)?] $setter:ident $field:ident $value:ty) => {
        #[doc = concat!("The same with this [`", stringify!($field), "`](#structfield.", stringify!($field), ").")]
        #[must_use]
        pub $($const)? fn $setter(self, $field: $value) -> Self {
            // No `mut self`: rustc 1.95 lets an optimized caller see such a change in its own copy of the argument.
            Self { $field, ..self }
        }
    };
}
pub(crate) use setters;
