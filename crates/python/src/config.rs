//! Arguments of Python in the language of the `WARPVERBS_*` variables, so that both go through one check.

use std::collections::{BTreeMap, HashMap};

use pyo3::prelude::*;
use warpverbs::config::{Config, Reader, variables_of};

use crate::error::Raise;

/// The configuration of a team: `given` by variable name, else the environment.
pub(crate) fn config(py: Python<'_>, given: &HashMap<String, String>) -> PyResult<Config> {
    let variable = |name: &str| match given.get(name) {
        Some(value) => Some(value.into()),
        None => std::env::var_os(name),
    };
    Config::from_variables(variable).map_err(|error| error.raise(py))
}

/// Names of settings of a team as arguments of Python, each with the variable that it sets.
#[pyfunction]
pub(crate) fn settings() -> BTreeMap<String, &'static str> {
    variables_of(Reader::Rank)
        .map(|row| (row.field(), row.name))
        .collect()
}
