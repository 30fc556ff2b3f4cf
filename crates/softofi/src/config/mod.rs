//! What a run of softofi is like: profile, seed, rates of refusals and of planted faults, bounds. One line of text says it.
//!
//! The text is `key=value` between commas. The variable [`VARIABLE`] has it for the process; a test may give one to `fi_getinfo`, as
//! the node `softofi:TEXT`, which then holds for the domains that are opened with that information.

mod keys;
mod profile;
mod settings;
mod table;

pub use keys::ConfigError;
pub use profile::Profile;
pub use settings::{Config, Dead, VARIABLE};
pub(crate) use table::{of_domain, of_environment, of_node};
