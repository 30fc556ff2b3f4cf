//! What the documents say of the code, checked against it.

mod walks;
