//! Setters of structs to which fields may be added.

/// A setter for each public field of a struct that other crates cannot write as an expression because fields may be added to it.
/// They are const where `const` stands before the type, which no struct can be whose fields are dropped.
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
