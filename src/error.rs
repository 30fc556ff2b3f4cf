//! The public error of the runtime.
