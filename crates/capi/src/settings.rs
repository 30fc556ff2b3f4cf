//! Settings as one text of C: variables without their prefix.

use warpverbs::config::{Reader, variables_of};

use crate::status::Failure;

/// The variables that a text of `field=value` sets, with their values. `reader` reads all of them.
pub(crate) fn settings_of(
    reader: Reader,
    text: &str,
) -> Result<Vec<(&'static str, String)>, Failure> {
    let mut settings: Vec<(&str, String)> = Vec::new();
    for setting in text.split(';').map(str::trim).filter(|one| !one.is_empty()) {
        let Some((field, value)) = setting.split_once('=') else {
            return Err(Failure::argument("settings", setting, "field=value"));
        };
        let (field, value) = (field.trim(), value.trim());
        let names = match reader {
            Reader::Engine => ["WARPVERBS_ENGINE_", "WARPVERBS_"].as_slice(),
            _ => &["WARPVERBS_"],
        };
        let names = names
            .iter()
            .map(|start| format!("{start}{}", field.to_uppercase()));
        let names: Vec<String> = names.collect();
        let Some(row) = variables_of(reader).find(|row| names.iter().any(|it| it == row.name))
        else {
            let limit = "a variable that is read here, without its prefix, in small letters (docs/configuration.md)";
            return Err(Failure::argument("settings", field, limit));
        };
        if settings.iter().any(|(name, _)| *name == row.name) {
            return Err(Failure::argument("settings", field, "said once"));
        }
        settings.push((row.name, value.to_owned()));
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_variables_and_what_is_none_is_refused_by_name() {
        let read = settings_of(Reader::Rank, " mtu=1024;; ack_timeout = 15 ;").unwrap();
        let wanted = [("WARPVERBS_MTU", "1024"), ("WARPVERBS_ACK_TIMEOUT", "15")];
        assert_eq!(read, wanted.map(|(name, value)| (name, value.to_owned())));
        assert_eq!(settings_of(Reader::Rank, " ; ").unwrap(), []);
        for (bad, named) in [
            ("mtu", "settings is mtu;"),
            ("mtuu=1", "settings is mtuu;"),
            ("MTU=1;mtu=2", "settings is mtu; it must be said once"),
            ("=1", "settings is ;"),
            ("qps=1", "settings is qps;"),
        ] {
            let refused = settings_of(Reader::Rank, bad).unwrap_err();
            assert!(format!("{refused:?}").contains(named), "{refused:?}");
        }
    }

    #[test]
    fn fields_of_an_engine_are_those_that_it_reads() {
        let read = settings_of(Reader::Engine, "qps=8; mtu=1024; connect_timeout_ms=7").unwrap();
        let names: Vec<&str> = read.iter().map(|(name, _)| *name).collect();
        let wanted = [
            "WARPVERBS_ENGINE_QPS",
            "WARPVERBS_MTU",
            "WARPVERBS_ENGINE_CONNECT_TIMEOUT_MS",
        ];
        assert_eq!(names, wanted);
        let of_auto = settings_of(Reader::Engine, "rails=2; gpu=1").unwrap();
        let wanted = [("WARPVERBS_ENGINE_RAILS", "2"), ("WARPVERBS_GPU", "1")];
        assert_eq!(
            of_auto,
            wanted.map(|(name, value)| (name, value.to_owned()))
        );
        for bad in ["windows=3", "ranks=2", "join_timeout_ms=5"] {
            assert!(settings_of(Reader::Engine, bad).is_err(), "{bad}");
        }
    }
}
