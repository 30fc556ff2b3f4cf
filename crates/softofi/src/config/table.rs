//! The configurations of this process. The name of a domain says which one it has.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Config, ConfigError, VARIABLE};

/// What a node of `fi_getinfo` begins with that is a configuration.
const NODE: &str = "softofi:";

/// The first is that of the environment. They stay for the life of the process.
static TABLE: Mutex<Vec<(String, Arc<Config>)>> = Mutex::new(Vec::new());

/// A configuration and its place in the table.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    pub(crate) number: usize,
    pub(crate) config: Arc<Config>,
}

fn table() -> MutexGuard<'static, Vec<(String, Arc<Config>)>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn numbered(text: &str) -> Result<Numbered, ConfigError> {
    let mut table = table();
    let known = table.iter().position(|(known, _)| known == text);
    let number = match known {
        Some(number) => number,
        None => {
            table.push((text.to_owned(), Arc::new(text.parse()?)));
            table.len() - 1
        }
    };
    let config = table[number].1.clone();
    Ok(Numbered { number, config })
}

/// That of the environment.
pub(crate) fn of_environment() -> Result<Numbered, ConfigError> {
    numbered(&std::env::var(VARIABLE).unwrap_or_default())
}

/// That of a node, if it is one.
pub(crate) fn of_node(node: &str) -> Option<Result<Numbered, ConfigError>> {
    node.strip_prefix(NODE).map(numbered)
}

/// That of a domain's name, `softofi0-rdm.3`.
pub(crate) fn of_domain(name: &str) -> Option<Arc<Config>> {
    let (_, number) = name.rsplit_once('.')?;
    let table = table();
    let (_, config) = table.get(number.parse::<usize>().ok()?)?;
    Some(config.clone())
}
