//! What cargo tells a build script, by environment variables.

use std::env;
use std::ffi::OsString;

use super::error::BuildError;

/// Returns a variable that cargo sets for every build script.
///
/// # Errors
/// [`BuildError::NotABuildScript`]
pub(super) fn variable(name: &'static str) -> Result<OsString, BuildError> {
    env::var_os(name).ok_or(BuildError::NotABuildScript { name })
}

/// Returns the file name of the source that is compiled for a debugger, with variables and little optimisation. The environment variable of
/// the package names it (`SIMT_DEBUG_TEST_SUPPORT=hello.cu`). Each package has its own variable, so that no other package is built again.
pub(super) fn debugged() -> Result<Option<OsString>, BuildError> {
    let package = variable("CARGO_PKG_NAME")?.to_string_lossy().into_owned();
    let name = format!("SIMT_DEBUG_{}", package.replace('-', "_").to_uppercase());
    println!("cargo::rerun-if-env-changed={name}");
    Ok(env::var_os(name))
}
