//! An argument in which two ranks differ.

use std::fmt;

use crate::team::{TeamError, printable};

/// An argument that ranks must give alike, and in which two of them differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The name of the argument.
    pub argument: String,
    /// A rank that has the first of the two values.
    pub first_rank: u32,
    /// The value of the rank `first_rank`.
    pub first: String,
    /// A rank that has the second value.
    pub second_rank: u32,
    /// The value of the rank `second_rank`.
    pub second: String,
    /// The number of the call in which the difference showed. None: no call had begun, the ranks were making the layer.
    pub call: Option<u32>,
    /// The name of the layer of that call; empty without a call.
    pub layer: String,
    /// The phase of the call in which the difference showed, 0 to 3; 0 without a call.
    pub phase: u32,
    /// Living ranks whose rows or words are missing here because of the difference.
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

/// Takes the difference out of an error of a meeting. Other errors come back as they were.
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
