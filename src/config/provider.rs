//! Which provider drives the NICs of an engine, as text.

use std::fmt;
use std::str::FromStr;

/// Which provider drives the NICs of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProviderChoice {
    /// The first that can drive the device: `mlx5`, then `verbs`, then `ofi`.
    #[default]
    Auto,
    /// mlx5 HCAs, by DevX.
    Mlx5,
    /// Any NIC with QPs of type RC, by libibverbs alone.
    Verbs,
    /// Domains of the provider of libfabric that has this name. None: the first provider that drives a NIC.
    Ofi(Option<String>),
}

/// A text that names no provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "provider '{value}': it must be {}, or {OFI}{SEPARATOR}NAME with 1 to {LONGEST_NAME} printable characters",
    words()
)]
pub struct BadProvider {
    /// The text.
    pub value: String,
}

/// The words of providers without a name after them.
const WORDS: [(&str, ProviderChoice); 4] = [
    ("auto", ProviderChoice::Auto),
    ("mlx5", ProviderChoice::Mlx5),
    ("verbs", ProviderChoice::Verbs),
    (OFI, ProviderChoice::Ofi(None)),
];
/// The word before the name of a provider of libfabric.
const OFI: &str = "ofi";
const SEPARATOR: char = ':';
/// Longest name of a provider of libfabric: `FI_NAME_MAX` without the NUL.
const LONGEST_NAME: usize = 63;

fn words() -> String {
    WORDS.map(|(word, _)| word).join(", ")
}

impl FromStr for ProviderChoice {
    type Err = BadProvider;

    /// Reads a choice such as `auto` or `ofi:efa`.
    fn from_str(text: &str) -> Result<Self, BadProvider> {
        let text = text.trim();
        if let Some((_, choice)) = WORDS.into_iter().find(|(word, _)| *word == text) {
            return Ok(choice);
        }
        let named = text.split_once(SEPARATOR);
        let named = named.filter(|(word, name)| *word == OFI && is_name(name));
        let named = named.map(|(_, name)| Self::Ofi(Some(name.to_owned())));
        named.ok_or_else(|| BadProvider {
            value: text.chars().take(64).collect(),
        })
    }
}

fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

impl fmt::Display for ProviderChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Ofi(Some(name)) = self {
            return write!(f, "{OFI}{SEPARATOR}{name}");
        }
        let word = WORDS.iter().find(|(_, choice)| choice == self);
        f.write_str(word.map_or("", |(word, _)| word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_read_as_it_is_written_and_another_word_is_refused() {
        let longest = format!("ofi:{}", "p".repeat(LONGEST_NAME));
        let named = ["ofi:efa", "ofi:tcp;ofi_rxm", &longest];
        let named = named.map(|text| (text, ProviderChoice::Ofi(Some(text[4..].to_owned()))));
        for (word, choice) in WORDS.into_iter().chain(named) {
            assert_eq!(word.parse(), Ok(choice.clone()));
            assert_eq!(choice.to_string(), word);
        }
        let long = format!("{longest}p");
        for bad in [
            "",
            "efa",
            "MLX5",
            "verbs,mlx5",
            "ofi:",
            "ofi:a b",
            "verbs:x",
            &long,
        ] {
            let refused = bad.parse::<ProviderChoice>().unwrap_err().to_string();
            let start: String = bad.chars().take(64).collect();
            let expected = format!(
                "provider '{start}': it must be auto, mlx5, verbs, ofi, or ofi:NAME with 1 to 63 printable characters"
            );
            assert_eq!(refused, expected);
        }
    }
}
