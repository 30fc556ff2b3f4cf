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
        /// The name of the number.
        name: &'static str,
        /// Its value.
        value: u32,
        /// The least value.
        least: u32,
        /// The greatest value.
        most: u32,
    },
    /// The QPs of the team are not for every thread.
    #[error(
        "the team's QPs are {sharing}; the MoE kernels need Shared ones (WARPVERBS_SHARING=shared)"
    )]
    Sharing {
        /// The way in which the QPs are shared.
        sharing: String,
    },
    /// A number of the shape is not a multiple of the number that it must be a multiple of.
    #[error("{name} is {value}, which is not a multiple of {of}")]
    Multiple {
        /// The name of the number.
        name: &'static str,
        /// Its value.
        value: u32,
        /// The number that it must be a multiple of.
        of: u32,
    },
    /// A grid that the device cannot run at once beside the grids of other ranks of this process on it. Kernels of ranks wait for
    /// each other, so all of them must run at once.
    #[error(
        "{blocks} blocks of {threads} threads do not fit: {device} runs {resident} such blocks of kernel {kernel} at once, for {ranks} ranks of this process: {each} for each. Set MoeConfig::grid to no more, or put fewer ranks on the device"
    )]
    Grid {
        /// The number of blocks that was asked for; at least 1.
        blocks: u32,
        /// The number of threads of a block.
        threads: u32,
        /// The name of the device.
        device: String,
        /// The kernel of which the fewest blocks fit.
        kernel: &'static str,
        /// The number of blocks of that kernel that the device runs at once.
        resident: u32,
        /// The number of ranks of this process on the device.
        ranks: u32,
        /// The number of blocks for each of these ranks.
        each: u32,
    },
    /// An array has another length than its shape says.
    #[error("{what} has {got} elements; its shape needs {want}")]
    Length {
        /// The name of the array.
        what: &'static str,
        /// The number of elements that the array has.
        got: usize,
        /// The number of elements that the array needs.
        want: usize,
    },
    /// A call with more tokens than the layer was made for.
    #[error("{tokens} tokens in a call; max_tokens is {max_tokens}")]
    Tokens {
        /// The number of tokens of the call.
        tokens: usize,
        /// The most tokens of a call.
        max_tokens: u32,
    },
    /// An expert that does not exist.
    #[error("token {token} chooses expert {expert}; expert ids are 0 to {last}, or -1 for none")]
    ExpertRange {
        /// The row of the token.
        token: usize,
        /// The id that the token chooses.
        expert: i32,
        /// The greatest id.
        last: u32,
    },
    /// A token chooses one expert twice: its weight would be ambiguous.
    #[error("token {token} chooses expert {expert} twice")]
    ExpertTwice {
        /// The row of the token.
        token: usize,
        /// The id that the token chooses.
        expert: i32,
    },
    /// A placement that does not fit the shape.
    #[error(
        "the placement has {experts} experts on {ranks} ranks; the layer has {want_experts} on {want_ranks}"
    )]
    Placement {
        /// The number of experts of the placement.
        experts: usize,
        /// The number of ranks of the placement.
        ranks: usize,
        /// The number of experts of the layer.
        want_experts: u32,
        /// The number of ranks of the team.
        want_ranks: u32,
    },
    /// A slot for an expert that does not exist.
    #[error("a slot of rank {rank} holds expert {expert}; the layer has {experts} experts")]
    SlotExpert {
        /// The rank of the slot.
        rank: usize,
        /// The id that the slot names.
        expert: u32,
        /// The number of experts of the layer.
        experts: u32,
    },
    /// Two replicas of an expert are at one rank, which would share their rows by chance.
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
        /// The name that was asked for.
        name: String,
    },
    /// A call whose tokens do not fit into the slots of the layer.
    #[error(
        "a token of {format} takes {bytes} bytes of a slot; those of the layer have {room}. Make the layer with the largest format of its calls"
    )]
    Slot {
        /// The format of the call.
        format: String,
        /// The number of bytes of a slot that a token of that format takes.
        bytes: u64,
        /// The number of bytes of a slot.
        room: u64,
    },
    /// A device address of the caller is not aligned for its array, or is zero although the layer needs the array.
    #[error("{what} is at {address:#x}; it must be a device address that is a multiple of {align}")]
    Address {
        /// The name of the array.
        what: &'static str,
        /// The device address that the caller gave.
        address: u64,
        /// The number that the address must be a multiple of.
        align: u64,
    },
    /// An option of a call that the layer was not made for.
    #[error("{what}: needs {needs}")]
    Option {
        /// The name of the option.
        what: &'static str,
        /// The layer that the option needs.
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
        /// The number of ranks of the layer.
        ranks: u32,
    },
    /// A view does not have the rank that sets it as a member.
    #[error("a view without rank {rank}, which sets it")]
    NotMember {
        /// The rank that sets the view.
        rank: u32,
    },
    /// A view that does not begin after the newest one.
    #[error("a view from call {first} on; the newest one begins at call {newest}")]
    ViewOrder {
        /// The first call of the view.
        first: u32,
        /// The first call of the newest view.
        newest: u32,
    },
    /// The oldest view cannot be replaced: all views of the layer are in use, and calls still need the oldest.
    #[error(
        "all {} views are in use: the oldest begins at call {first}, and call {needed} has not ended; the last one that has is {finished}",
        MOE_VIEWS
    )]
    ViewInUse {
        /// The first call of the oldest view.
        first: u32,
        /// The last call that runs in the oldest view.
        needed: u32,
        /// The last call that has ended.
        finished: u32,
    },
    /// A rank cannot be cleared, since it is a member of the newest view.
    #[error("rank {peer} is a member from call {first} on")]
    PeerMember {
        /// The rank that was to be cleared.
        peer: u32,
        /// The first call of the newest view.
        first: u32,
    },
    /// A rank cannot be cleared, since calls that have not ended may need it.
    #[error("calls up to {needed} may need rank {peer}; the last one that has ended is {finished}")]
    PeerNeeded {
        /// The rank that was to be cleared.
        peer: u32,
        /// The last call that may need the rank.
        needed: u32,
        /// The last call that has ended.
        finished: u32,
    },
    /// A rank cannot be cleared, since kernels may post to it.
    #[error(
        "kernels may post to rank {peer}: it is not closed, or they hold guards of it ({guards})"
    )]
    PeerOpen {
        /// The rank that was to be cleared.
        peer: u32,
        /// The number of guards of the rank that kernels hold.
        guards: u64,
    },
    /// This rank could not make a part of a layer. No rank has the layer then, and all can make it again.
    #[error(
        "{what} of a layer could not be made: {part} of its {bytes} bytes at each of {ranks} ranks, for hidden={hidden}, experts={experts}, top_k={top_k}, max_tokens={max_tokens} in {format}: {source}. A smaller max_tokens takes less; when there is room, all ranks can make the layer again"
    )]
    NotMade {
        /// The name of the part.
        what: &'static str,
        /// The number of bytes of the part.
        part: u64,
        /// The number of bytes that the layer takes at each rank.
        bytes: u64,
        /// The number of ranks of the layer.
        ranks: u32,
        /// The number of elements of a token.
        hidden: u32,
        /// The number of experts of the layer.
        experts: u32,
        /// The most choices of a token.
        top_k: u32,
        /// The most tokens of a rank in a call.
        max_tokens: u32,
        /// The format of the tokens.
        format: String,
        /// The error of the team or the device.
        source: Box<MoeError>,
    },
    /// A call did not succeed for all ranks.
    #[error("{0}")]
    Call(Box<CallReport>),
    /// Ranks differ in an argument that all must give alike. All of these ranks live.
    #[error("{0}")]
    Arguments(Box<Difference>),
    /// The team of the layer has failed.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// An error of the device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl MoeError {
    /// Returns the error of a layer that could not be made, for an error of the team.
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
