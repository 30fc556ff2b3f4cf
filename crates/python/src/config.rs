//! Arguments of Python in the language of the `WARPVERBS_*` variables, so that both go through one check.

use std::collections::HashMap;

use pyo3::prelude::*;
use warpverbs::config::Config;

use crate::error::Raise;

/// The configuration of a team: `given` by variable name, else the environment.
pub(crate) fn config(py: Python<'_>, given: &HashMap<String, String>) -> PyResult<Config> {
    let variable = |name: &str| match given.get(name) {
        Some(value) => Some(value.clone()),
        None => std::env::var(name).ok(),
    };
    Config::from_variables(variable).map_err(|error| error.raise(py))
}
