//! Makes the URL of the store, with the options that variables give.

use crate::config::error::ConfigError;
use crate::config::source::Source;

/// The variables that are options of a store with TLS, with the option of each.
const STORE_FILES: [(&str, &str); 3] = [
    ("WARPVERBS_STORE_CA", "ca"),
    ("WARPVERBS_STORE_CERT", "cert"),
    ("WARPVERBS_STORE_KEY", "key"),
];

/// Returns the URL of the store, with the options that variables give. An option that the URL has already stays.
pub(super) fn url(source: &Source<'_>) -> Result<String, ConfigError> {
    let url = source.text("WARPVERBS_STORE");
    let shared = source.switch("WARPVERBS_STORE_SHARED")?;
    let (place, own) = url.split_once('?').unwrap_or((&url, ""));
    let mut options: Vec<String> = own.split('&').map(str::to_owned).collect();
    options.retain(|option| !option.is_empty());
    if place.starts_with("file://") && shared && options.is_empty() {
        options.push("shared".to_owned());
    }
    if place.starts_with("etcds://") {
        for (name, option) in STORE_FILES {
            let begin = format!("{option}=");
            if let Some(file) = source.set(name)
                && !options.iter().any(|own| own.starts_with(&begin))
            {
                options.push(begin + &percent_encoded(&file));
            }
        }
    }
    if options.is_empty() {
        Ok(url)
    } else {
        Ok(format!("{place}?{}", options.join("&")))
    }
}

/// Returns `text` with percent encoding, as it may stand in a URL.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    let encoded = text.bytes().map(|byte| {
        if plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02x}")
        }
    });
    encoded.collect()
}
