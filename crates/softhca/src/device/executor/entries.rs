//! The entries of an executor's tables as plain bytes. Crate `gpuhca-abi` has the definitions.

use bytemuck::{Pod, Zeroable};

/// Defines a struct of the tables.
macro_rules! entry {
    (
        $(#[doc = $doc:literal])*
        $(align($align:literal))?
        pub struct $name:ident {
            $( $(#[doc = $field_doc:literal])* pub $field:ident: $ty:ty, )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
        #[repr(C $(, align($align))?)]
        pub struct $name {
            $( $(#[doc = $field_doc])* pub $field: $ty, )*
        }
    };
}

gpuhca_abi::entries!(entry);

const _: () = assert!(
    size_of::<HcaQp>() == 256
        && size_of::<HcaCq>() == 64
        && size_of::<HcaKey>() == 64
        && size_of::<HcaQpProgress>() == 256
        && size_of::<HcaCqProgress>() == 16
);
