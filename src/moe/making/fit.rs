//! Checks that shape, placement and team of a layer fit each other, and names the values that all ranks must have alike.

use crate::moe::config::MoeConfig;
use crate::moe::error::MoeError;
use crate::moe::placement::{Capacity, Placement};
use crate::team::{Sharing, Team};

/// Least depth of a send queue, as log2: a warp's batch of 32 puts and a signal must take at most a quarter of the queue.
const LEAST_LOG_DEPTH: u8 = 8;

/// Returns the placement, if shape, placement and team fit each other as far as this rank sees.
pub(in crate::moe) fn fitting(
    team: &Team,
    config: &MoeConfig,
    placement: impl FnOnce() -> Placement,
) -> Result<Placement, MoeError> {
    config.check(team.ranks())?;
    let placement = placement();
    if team.config().log_depth < LEAST_LOG_DEPTH {
        return Err(MoeError::Shape {
            name: "the team's log_depth",
            value: team.config().log_depth.into(),
            least: LEAST_LOG_DEPTH.into(),
            most: 15,
        });
    }
    if team.config().modes.sharing != Sharing::Shared {
        return Err(MoeError::Sharing {
            sharing: format!("{:?}", team.config().modes.sharing),
        });
    }
    // `with_room` judges how many experts a rank may hold.
    let capacity = Capacity {
        experts: config.experts,
        ranks: team.ranks(),
        room: u32::MAX,
    };
    capacity.check(&placement)?;
    Ok(placement)
}

/// Returns the values that all ranks must have alike: name and value.
pub(in crate::moe) fn agreed(config: &MoeConfig, placement: &Placement) -> Vec<(String, String)> {
    let placement = placement.fingerprint();
    let pairs = [
        ("hidden", config.hidden.to_string()),
        ("experts", config.experts.to_string()),
        ("top-k", config.top_k.to_string()),
        ("max_tokens", config.max_tokens.to_string()),
        ("format", format!("{:?}", config.format)),
        ("layout", format!("{:?}", config.layout)),
        ("returns", format!("{:?}", config.returns)),
        ("local_experts", config.local_experts.to_string()),
        ("placement of the experts", placement),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// Returns `config` with its number of expert slots set: the number in `config`, or, if that is 0, as many as `placement` needs.
pub(in crate::moe) fn with_room(
    config: MoeConfig,
    placement: &Placement,
) -> Result<MoeConfig, MoeError> {
    let needed = placement.most_local();
    if config.local_experts != 0 && needed > config.local_experts {
        return Err(MoeError::Shape {
            name: "number of expert slots of a rank",
            value: needed,
            least: 0,
            most: config.local_experts,
        });
    }
    let local_experts = config.local_experts.max(needed);
    Ok(MoeConfig {
        local_experts,
        ..config
    })
}
