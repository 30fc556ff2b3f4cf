//! Which provider drives the NICs of an engine, as text.

use std::fmt;
use std::str::FromStr;

/// Which provider drives the NICs of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProviderChoice {
    /// The first that can drive the device: `mlx5`, then `verbs`.
    #[default]
    Auto,
    /// mlx5 HCAs, by DevX.
    Mlx5,
    /// Any NIC with QPs of type RC, by libibverbs alone.
    Verbs,
}

/// A text that names no provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("provider '{value}': it must be {}", words())]
pub struct BadProvider {
    /// The text.
    pub value: String,
}

/// The words of providers that have no name of their own after them.
const WORDS: [(&str, ProviderChoice); 3] = [
    ("auto", ProviderChoice::Auto),
    ("mlx5", ProviderChoice::Mlx5),
    ("verbs", ProviderChoice::Verbs),
];

fn words() -> String {
    let [others @ .., last] = WORDS.map(|(word, _)| word);
    format!("{} or {last}", others.join(", "))
}

impl FromStr for ProviderChoice {
    type Err = BadProvider;

    /// Reads a choice such as `auto` or `verbs`.
    fn from_str(text: &str) -> Result<Self, BadProvider> {
        let text = text.trim();
        let found = WORDS.into_iter().find(|(word, _)| *word == text);
        found.map(|(_, choice)| choice).ok_or_else(|| BadProvider {
            value: text.chars().take(64).collect(),
        })
    }
}

impl fmt::Display for ProviderChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = WORDS.iter().find(|(_, choice)| choice == self);
        f.write_str(word.map_or("", |(word, _)| word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_read_as_it_is_written_and_another_word_is_refused() {
        for (word, choice) in WORDS {
            assert_eq!(word.parse(), Ok(choice.clone()));
            assert_eq!(choice.to_string(), word);
        }
        for bad in ["", "efa", "MLX5", "verbs,mlx5"] {
            let refused = bad.parse::<ProviderChoice>().unwrap_err().to_string();
            let expected = format!("provider '{bad}': it must be auto, mlx5 or verbs");
            assert_eq!(refused, expected);
        }
    }
}
