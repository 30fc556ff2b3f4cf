//! The input of one rank's dispatch.

use std::error::Error;
use std::fmt;

use crate::Shape;

/// The input of one rank's dispatch, borrowed from its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Batch<'a> {
    /// The tokens, BF16 bits, `[tokens, hidden]`.
    pub x: &'a [u16],
    /// The chosen experts, `[tokens, top_k]`. -1 is no choice.
    pub experts: &'a [i32],
    /// The weights of the choices, `[tokens, top_k]`.
    pub weights: &'a [f32],
}

impl<'a> Batch<'a> {
    /// Checks lengths, number of tokens and every expert id against `shape`.
    ///
    /// # Errors
    /// The first defect, with its value and limit.
    pub fn check(&self, shape: &Shape) -> Result<(), BatchError> {
        let tokens = self.experts.len().checked_div(shape.top_k).unwrap_or(0);
        let choices = tokens * shape.top_k;
        for (what, got, want) in [
            ("the routing", self.experts.len(), choices),
            ("the weights", self.weights.len(), choices),
            ("the tokens", self.x.len(), tokens * shape.hidden),
        ] {
            if got != want {
                return Err(BatchError::Length { what, got, want });
            }
        }
        if tokens > shape.max_tokens {
            return Err(BatchError::Tokens {
                tokens,
                max_tokens: shape.max_tokens,
            });
        }
        self.check_choices(shape)
    }

    /// Checks that each choice is -1 or an expert, and that no token chooses an expert twice.
    fn check_choices(&self, shape: &Shape) -> Result<(), BatchError> {
        for (place, &expert) in self.experts.iter().enumerate() {
            let token = place / shape.top_k;
            if expert == -1 {
                continue;
            }
            if usize::try_from(expert).map_or(true, |id| id >= shape.experts) {
                return Err(BatchError::Expert {
                    token,
                    expert,
                    experts: shape.experts,
                });
            }
            if self.experts[token * shape.top_k..place].contains(&expert) {
                return Err(BatchError::Twice { token, expert });
            }
        }
        Ok(())
    }

    /// Returns the number of tokens.
    #[must_use]
    pub fn tokens(&self, shape: &Shape) -> usize {
        self.experts.len() / shape.top_k
    }

    /// Returns token `index`, BF16 bits.
    ///
    /// # Panics
    /// If the batch has no token `index`.
    #[must_use]
    pub fn token(&self, shape: &Shape, index: usize) -> &'a [u16] {
        &self.x[index * shape.hidden..(index + 1) * shape.hidden]
    }
}

/// A batch that does not fit its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchError {
    /// An array with another length than the shape says.
    Length {
        /// The name of the array.
        what: &'static str,
        /// The number of its elements.
        got: usize,
        /// The number of elements that it needs.
        want: usize,
    },
    /// A batch of more tokens than a call may have.
    Tokens {
        /// The number of tokens of the batch.
        tokens: usize,
        /// The limit.
        max_tokens: usize,
    },
    /// A choice of an expert that does not exist.
    Expert {
        /// The row of the token.
        token: usize,
        /// The id of the expert.
        expert: i32,
        /// The number of experts of the layer. Ids are below it.
        experts: usize,
    },
    /// A token that chooses one expert twice: its weight would be ambiguous.
    Twice {
        /// The row of the token.
        token: usize,
        /// The id of the expert.
        expert: i32,
    },
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { what, got, want } => {
                write!(f, "{what} has {got} elements; its shape needs {want}")
            }
            Self::Tokens { tokens, max_tokens } => {
                write!(f, "{tokens} tokens in a call; max_tokens is {max_tokens}")
            }
            Self::Expert {
                token,
                expert,
                experts,
            } => write!(
                f,
                "token {token} chooses expert {expert}; it must be below {experts}, or -1 for none"
            ),
            Self::Twice { token, expert } => {
                write!(f, "token {token} chooses expert {expert} twice")
            }
        }
    }
}

impl Error for BatchError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Returns;

    const SHAPE: Shape = Shape {
        hidden: 8,
        experts: 4,
        top_k: 2,
        max_tokens: 2,
        returns: Returns::Sums,
    };

    fn message(tokens: usize, experts: &[i32]) -> String {
        let (x, weights) = (vec![0; tokens * 8], vec![0.5; experts.len()]);
        let batch = Batch {
            x: &x,
            experts,
            weights: &weights,
        };
        batch.check(&SHAPE).unwrap_err().to_string()
    }

    #[test]
    fn a_batch_that_fits_passes_and_its_tokens_are_found() {
        let x: Vec<u16> = (0..16).collect();
        let batch = Batch {
            x: &x,
            experts: &[0, 3, -1, -1],
            weights: &[0.5; 4],
        };
        assert_eq!(batch.check(&SHAPE), Ok(()));
        assert_eq!((batch.tokens(&SHAPE), batch.token(&SHAPE, 1)), (2, &x[8..]));
        assert_eq!(Batch::default().check(&SHAPE), Ok(()));
    }

    #[test]
    fn a_choice_out_of_range_or_made_twice_is_named_by_token_and_value() {
        let range = |token, expert| {
            format!("token {token} chooses expert {expert}; it must be below 4, or -1 for none")
        };
        assert_eq!(message(2, &[0, 1, 4, 0]), range(1, 4));
        assert_eq!(message(1, &[-2, 1]), range(0, -2));
        assert_eq!(message(2, &[0, 1, 2, 2]), "token 1 chooses expert 2 twice");
    }

    #[test]
    fn arrays_that_are_not_whole_rows_and_too_many_tokens_are_refused() {
        assert_eq!(
            message(1, &[0, 1, 2]),
            "the routing has 3 elements; its shape needs 2"
        );
        assert_eq!(
            message(3, &[0, 1, 0, 1, 0, 1]),
            "3 tokens in a call; max_tokens is 2"
        );
        let short = Batch {
            experts: &[0, 1],
            weights: &[1.0],
            x: &[0; 8],
        };
        assert_eq!(
            short.check(&SHAPE).unwrap_err().to_string(),
            "the weights has 1 elements; its shape needs 2"
        );
        let no_choices = Shape { top_k: 0, ..SHAPE };
        assert!(short.check(&no_choices).is_err());
    }
}
