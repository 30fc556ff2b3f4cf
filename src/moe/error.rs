//! What can go wrong in a MoE layer.

use super::difference::Difference;
use super::report::CallReport;
use crate::abi::MOE_VIEWS;
use crate::error::{Error, Part};
use crate::gpu::GpuError;
use crate::team::TeamError;

/// An error of a MoE layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoeError {
    /// A number of the shape is outside its limits.
    #[error("{name} is {value}; it must be {least} to {most}")]
    Shape {
        /// Which number.
        name: &'static str,
        /// What it is.
        value: u32,
        /// Least value.
        least: u32,
        /// Greatest value.
        most: u32,
    },
    /// QPs that not every thread may use.
    #[error(
        "the team's QPs are {sharing}; the MoE kernels need Shared ones (WARPVERBS_SHARING=shared)"
    )]
    Sharing {
        /// How they are shared.
        sharing: String,
    },
    /// A number of the shape that must be a multiple of another.
    #[error("{name} is {value}, which is not a multiple of {of}")]
    Multiple {
        /// Which number.
        name: &'static str,
        /// What it is.
        value: u32,
        /// What it must be a multiple of.
        of: u32,
    },
    /// A grid that the device cannot run at once beside those of the other ranks of this process on it. Kernels of ranks wait for
    /// each other, so all of them must run at once.
    #[error(
        "{blocks} blocks of {threads} threads do not fit: {device} runs {resident} such blocks of kernel {kernel} at once, for {ranks} ranks of this process: {each} for each. Set MoeConfig::grid to no more, or put fewer ranks on the device"
    )]
    Grid {
        /// Blocks that were asked for; at least 1.
        blocks: u32,
        /// Threads of a block.
        threads: u32,
        /// Name of the device.
        device: String,
        /// The kernel of which the fewest blocks fit.
        kernel: &'static str,
        /// Its blocks that the device runs at once.
        resident: u32,
        /// Ranks of this process on the device.
        ranks: u32,
        /// Blocks for each of them.
        each: u32,
    },
    /// An array has another length than its shape says.
    #[error("{what} has {got} elements; its shape needs {want}")]
    Length {
        /// Which array.
        what: &'static str,
        /// Elements that it has.
        got: usize,
        /// Elements that it needs.
        want: usize,
    },
    /// A call with more tokens than the layer was made for.
    #[error("{tokens} tokens in a call; max_tokens is {max_tokens}")]
    Tokens {
        /// Tokens of the call.
        tokens: usize,
        /// The limit.
        max_tokens: u32,
    },
    /// An expert that does not exist.
    #[error("token {token} chooses expert {expert}; expert ids are 0 to {last}, or -1 for none")]
    ExpertRange {
        /// Row of the token.
        token: usize,
        /// The id.
        expert: i32,
        /// Greatest id.
        last: u32,
    },
    /// A token that chooses one expert twice: its weight would be ambiguous.
    #[error("token {token} chooses expert {expert} twice")]
    ExpertTwice {
        /// Row of the token.
        token: usize,
        /// The id.
        expert: i32,
    },
    /// A placement that does not fit the shape.
    #[error(
        "the placement has {experts} experts on {ranks} ranks; the layer has {want_experts} on {want_ranks}"
    )]
    Placement {
        /// Experts of the placement.
        experts: usize,
        /// Ranks of the placement.
        ranks: usize,
        /// Experts of the layer.
        want_experts: u32,
        /// Ranks of the team.
        want_ranks: u32,
    },
    /// A slot for an expert that does not exist.
    #[error("a slot of rank {rank} holds expert {expert}; the layer has {experts} experts")]
    SlotExpert {
        /// Rank of the slot.
        rank: usize,
        /// The id that the slot names.
        expert: u32,
        /// Experts of the layer.
        experts: u32,
    },
    /// Two replicas of an expert at one rank, which would share their rows by chance.
    #[error("rank {rank} holds expert {expert} twice")]
    ReplicaTwice {
        /// The rank that holds both replicas.
        rank: usize,
        /// The expert that both slots hold.
        expert: u32,
    },
    /// A placement policy that does not exist.
    #[error("there is no placement policy {name:?}; there are fixed and spread")]
    Policy {
        /// What was asked for.
        name: String,
    },
    /// A call whose tokens do not fit into the slots of the layer.
    #[error(
        "a token of {format} takes {bytes} bytes of a slot; those of the layer have {room}. Make the layer with the largest format of its calls"
    )]
    Slot {
        /// The format of the call.
        format: String,
        /// Bytes of a slot that a token of it takes.
        bytes: u64,
        /// Bytes of a slot.
        room: u64,
    },
    /// A device address of the caller is not aligned for its array, or is zero although the layer needs the array.
    #[error("{what} is at {address:#x}; it must be a device address that is a multiple of {align}")]
    Address {
        /// Which buffer.
        what: &'static str,
        /// The device address that the caller gave.
        address: u64,
        /// What it must be a multiple of.
        align: u64,
    },
    /// An option of a call that the layer was not made for.
    #[error("{what}: needs {needs}")]
    Option {
        /// Which option.
        what: &'static str,
        /// What it needs.
        needs: &'static str,
    },
    /// A second combine of one dispatch.
    #[error(
        "combine: the dispatch of this handle has been combined already, and a combine takes the rows of one dispatch back once. Dispatch again, in this handle or another; for an output that is needed twice copy `out`"
    )]
    CombinedAlready,
    /// A rank that the layer does not have.
    #[error("rank {rank}; the layer has {ranks} ranks")]
    Rank {
        /// The rank that the caller gave.
        rank: u32,
        /// Ranks of the layer.
        ranks: u32,
    },
    /// A view without the rank that sets it.
    #[error("a view without rank {rank}, which sets it")]
    NotMember {
        /// The rank that sets the view.
        rank: u32,
    },
    /// A view that does not begin after the newest one.
    #[error("a view from call {first} on; the newest one begins at call {newest}")]
    ViewOrder {
        /// First call of the view.
        first: u32,
        /// First call of the newest one.
        newest: u32,
    },
    /// Calls need all views of the layer.
    #[error(
        "all {} views are in use: the oldest begins at call {first}, and call {needed} has not ended; the last one that has is {finished}",
        MOE_VIEWS
    )]
    ViewInUse {
        /// First call of the oldest one.
        first: u32,
        /// The last call that runs in it.
        needed: u32,
        /// The last call that has ended.
        finished: u32,
    },
    /// What is known of a member is not forgotten.
    #[error("rank {peer} is a member from call {first} on")]
    PeerMember {
        /// The rank.
        peer: u32,
        /// First call of the newest view.
        first: u32,
    },
    /// Calls may still use what is known of a rank.
    #[error("calls up to {needed} may need rank {peer}; the last one that has ended is {finished}")]
    PeerNeeded {
        /// The rank.
        peer: u32,
        /// The last call that may need it.
        needed: u32,
        /// The last call that has ended.
        finished: u32,
    },
    /// Kernels may post to a rank.
    #[error(
        "kernels may post to rank {peer}: it is not closed, or they hold guards of it ({guards})"
    )]
    PeerOpen {
        /// The rank.
        peer: u32,
        /// Guards that kernels hold.
        guards: u64,
    },
    /// A part of a layer that this rank could not make. No rank has the layer then, and all can make it again.
    #[error(
        "{what} of a layer could not be made: {part} of its {bytes} bytes at each of {ranks} ranks, for hidden={hidden}, experts={experts}, top_k={top_k}, max_tokens={max_tokens} in {format}: {source}. A smaller max_tokens takes less; when there is room, all ranks can make the layer again"
    )]
    NotMade {
        /// Which part.
        what: &'static str,
        /// Bytes of the part.
        part: u64,
        /// Bytes that the layer takes at each rank.
        bytes: u64,
        /// Ranks of the layer.
        ranks: u32,
        /// Elements of a token.
        hidden: u32,
        /// Experts of the layer.
        experts: u32,
        /// Most choices of a token.
        top_k: u32,
        /// Most tokens of a rank in a call.
        max_tokens: u32,
        /// The format of tokens.
        format: String,
        /// The error of the team or the device.
        source: Box<MoeError>,
    },
    /// A call that did not go through for all ranks.
    #[error("{0}")]
    Call(Box<CallReport>),
    /// Ranks differ in an argument that all must give alike. None of them is gone.
    #[error("{0}")]
    Arguments(Box<Difference>),
    /// The team of the layer has failed.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// The device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl MoeError {
    /// The error of a layer that could not be made.
    pub(super) fn of_making(error: TeamError) -> Self {
        match Difference::try_from(error) {
            Ok(found) => Self::Arguments(Box::new(found)),
            Err(error) => Self::Team(error),
        }
    }
}

impl From<MoeError> for Error {
    fn from(error: MoeError) -> Self {
        Self::new(Part::Moe, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::printable;

    #[test]
    fn a_difference_is_told_with_both_ranks_and_values() {
        let error = TeamError::Mismatch {
            what: "hidden".to_owned(),
            first_rank: 0,
            first: "128".to_owned(),
            second_rank: 2,
            second: "256".to_owned(),
        };
        let words = MoeError::of_making(error).to_string();
        assert_eq!(
            words,
            "hidden is 128 at rank 0 but 256 at rank 2; pass the same at all ranks"
        );
        let other = MoeError::of_making(TeamError::NotConnected { peer: 3 });
        assert!(matches!(other, MoeError::Team(_)));
    }

    #[test]
    fn arguments_of_other_ranks_are_shown_as_one_plain_line() {
        let text = || "a\n\u{1b}[2J\u{202e}\u{85}".to_owned();
        let error = TeamError::Mismatch {
            what: text(),
            first_rank: 0,
            first: text(),
            second_rank: 2,
            second: text(),
        };
        let words = MoeError::of_making(error).to_string();
        assert_eq!(words, printable(&words));
        assert!(words.contains("a\\n\\u{1b}[2J"), "{words}");
    }
}
