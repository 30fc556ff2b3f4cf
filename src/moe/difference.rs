//! An argument in which two ranks differ.

use std::fmt;

use crate::team::{TeamError, printable};

/// An argument that ranks must give alike, and in which two of them differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// Which argument.
    pub argument: String,
    /// A rank that has the first of the two values.
    pub first_rank: u32,
    /// Its value.
    pub first: String,
    /// Another rank.
    pub second_rank: u32,
    /// Its value.
    pub second: String,
    /// Number of the call in which it showed. None: no call had begun, the ranks were making the layer.
    pub call: Option<u32>,
    /// Name of the layer of that call; empty without one.
    pub layer: String,
    /// Phase of the call in which it showed, 0 to 3; 0 without a call.
    pub phase: u32,
    /// Ranks of which something is missing here for this reason. They live.
    pub missed: Vec<u32>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [argument, first, second] =
            [&self.argument, &self.first, &self.second].map(|text| printable(text));
        let (first_rank, second_rank) = (self.first_rank, self.second_rank);
        write!(
            f,
            "{argument} is {first} at rank {first_rank} but {second} at rank {second_rank}"
        )?;
        if let Some(call) = self.call {
            write!(f, ", in call {call}")?;
        }
        f.write_str("; pass the same at all ranks")
    }
}

/// What a rank found when it met the others to make something; else the error as it was.
impl TryFrom<TeamError> for Difference {
    type Error = TeamError;

    fn try_from(error: TeamError) -> Result<Self, TeamError> {
        let none = (None, String::new());
        let (argument, first_rank, first, second_rank, second, (call, layer)) = match error {
            TeamError::Mismatch {
                what,
                first_rank,
                first,
                second_rank,
                second,
            } => (what, first_rank, first, second_rank, second, none),
            TeamError::Differs {
                argument,
                first_rank,
                first,
                second_rank,
                second,
                call,
                layer,
            } => {
                let of_call = (Some(call), layer);
                (argument, first_rank, first, second_rank, second, of_call)
            }
            other => return Err(other),
        };
        Ok(Self {
            argument,
            first_rank,
            first,
            second_rank,
            second,
            call,
            layer,
            phase: 0,
            missed: Vec::new(),
        })
    }
}
