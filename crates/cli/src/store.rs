//! The store in which ranks meet, for commands that look at it.

use std::ffi::OsString;

use warpverbs::config::{Config, ConfigError};

/// Returns the configuration of a rank with the store `store`, if given. The variables of stores apply to it, too.
pub(crate) fn configured(store: Option<&str>) -> Result<Config, ConfigError> {
    let variable = |name: &str| match (name, store) {
        ("WARPVERBS_STORE", Some(store)) => Some(store.into()),
        _ => std::env::var_os(name),
    };
    as_a_rank(variable)
}

/// Returns the configuration that a rank reads from these variables. A process that no launcher has started reads them as the only rank of
/// a team.
pub(crate) fn as_a_rank(
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Config, ConfigError> {
    match Config::from_variables(&variable) {
        Err(ConfigError::NoRank) => Config::from_variables(|name| match name {
            "WARPVERBS_RANK" => Some("0".into()),
            "WARPVERBS_RANKS" => Some("1".into()),
            _ => variable(name),
        }),
        config => config,
    }
}

/// Returns the URL of a store without its password and options.
pub(crate) fn place(url: &str) -> String {
    let url = url.split_once('?').map_or(url, |(place, _)| place);
    match url.split_once("://") {
        _ if url.is_empty() => "in memory (WARPVERBS_STORE is not set)".to_owned(),
        Some((kind, rest)) if kind != "file" => {
            let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
            format!("{kind}://{rest}")
        }
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_shows_no_password() {
        for (url, shown) in [
            ("etcd://me:secret@a:1,b:2/p?insecure", "etcd://a:1,b:2/p"),
            ("etcds://a:1/p?key=/k", "etcds://a:1/p"),
            ("file:///a@b?shared", "file:///a@b"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(place(url), shown);
        }
    }
}
