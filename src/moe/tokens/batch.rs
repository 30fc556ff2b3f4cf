//! The tokens that a rank gives to dispatch from the host, and the sources of the rows that dispatch brings.

use crate::moe::{MoeConfig, MoeError, check_routing};

/// The input of one rank's dispatch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Tokens, BF16 bits, `[tokens, hidden]`.
    pub x: Vec<u16>,
    /// Chosen experts, `[tokens, top_k]`; -1 is no choice.
    pub experts: Vec<i32>,
    /// Weights of the choices, `[tokens, top_k]`.
    pub weights: Vec<f32>,
}

impl Batch {
    /// Checks lengths, number of tokens and every expert id against `config`.
    ///
    /// # Errors
    /// The first length, number or id that is wrong, with its value and limit.
    pub fn check(&self, config: &MoeConfig) -> Result<(), MoeError> {
        self.check_lengths(config)?;
        check_routing(&self.experts, config.top_k, config.experts)
    }

    pub(in crate::moe) fn check_lengths(&self, config: &MoeConfig) -> Result<(), MoeError> {
        let x = ("the tokens", self.x.len(), config.hidden as usize);
        check_arrays(config, self.experts.len(), self.weights.len(), &[x])
    }

    /// Returns the number of tokens.
    #[must_use]
    pub fn tokens(&self, config: &MoeConfig) -> usize {
        self.experts.len() / config.top_k as usize
    }

    /// Returns the BF16 bits of token `index`.
    ///
    /// # Panics
    /// If `index` is not below the number of tokens.
    #[must_use]
    pub fn token(&self, config: &MoeConfig, index: usize) -> &[u16] {
        let hidden = config.hidden as usize;
        &self.x[index * hidden..(index + 1) * hidden]
    }
}

/// Checks the lengths of a batch: choices, weights, and `arrays`, each with its name, its length and its elements per token.
pub(in crate::moe) fn check_arrays(
    config: &MoeConfig,
    choices: usize,
    weights: usize,
    arrays: &[(&'static str, usize, usize)],
) -> Result<(), MoeError> {
    let top_k = config.top_k as usize;
    let tokens = choices / top_k;
    let by_choice = [
        ("the routing", choices, top_k),
        ("the weights", weights, top_k),
    ];
    for &(what, got, each) in by_choice.iter().chain(arrays) {
        let want = tokens * each;
        if got != want {
            return Err(MoeError::Length { what, got, want });
        }
    }
    if tokens > config.max_tokens as usize {
        return Err(MoeError::Tokens {
            tokens,
            max_tokens: config.max_tokens,
        });
    }
    Ok(())
}

/// The source of a row of a dispatch output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The rank that sent the row.
    pub rank: u32,
    /// The row in that rank's input.
    pub token: u32,
}

/// One row of a rank-major output.
#[derive(Clone, Debug, PartialEq)]
pub struct RankRow {
    /// The row in the input of the rank that sent it.
    pub token: u32,
    /// Local number of each chosen expert at this rank, by k; -1 for no choice, or an expert of another rank.
    pub experts: Vec<i32>,
    /// Weight of each choice, by k; 0 where `experts` is -1.
    pub weights: Vec<f32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_the_wrong_size_is_refused() {
        let shape = MoeConfig {
            hidden: 8,
            experts: 3,
            top_k: 2,
            max_tokens: 4,
            ..MoeConfig::BF16
        };
        let batch = |experts: &[i32]| Batch {
            x: vec![0x3f80; experts.len() / 2 * 8],
            experts: experts.to_vec(),
            weights: vec![0.5; experts.len()],
        };
        let mut bad = batch(&[0, 1]);
        bad.x.pop();
        assert_eq!(
            bad.check(&shape).unwrap_err().to_string(),
            "the tokens has 7 elements; its shape needs 8"
        );
        let many = batch(&[0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(
            many.check(&shape).unwrap_err().to_string(),
            "5 tokens in a call; max_tokens is 4"
        );
    }
}
