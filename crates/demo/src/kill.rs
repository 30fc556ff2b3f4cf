//! The death of a rank, as `--kill` gives it.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use warpverbs::config::whole;

/// A kill, given as `RANK@STEP`: the rank dies when it begins the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kill {
    /// The rank that dies.
    pub(crate) rank: u32,
    /// The step, counted from 1.
    pub(crate) step: u32,
}

impl FromStr for Kill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('@').and_then(|(rank, step)| {
            let number = |text| u32::try_from(whole(text)?).ok();
            Some(Self {
                rank: number(rank)?,
                step: number(step)?,
            })
        });
        parsed.ok_or_else(|| format!("'{text}' is not RANK@STEP"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_a_rank_at_a_step() {
        for text in ["2@100", "0x2@0x64"] {
            assert_eq!(text.parse(), Ok(Kill { rank: 2, step: 100 }));
        }
        for text in [
            "",
            "2",
            "@",
            "2@",
            "@3",
            "-1@3",
            "2@3@4",
            "2 @3",
            "+2@3",
            "2@03",
            "4294967296@1",
        ] {
            let error = text.parse::<Kill>().unwrap_err();
            assert_eq!(error, format!("'{text}' is not RANK@STEP"));
        }
    }
}
