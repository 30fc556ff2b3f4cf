//! The routings that the measurement knows.

use std::fmt;

/// How tokens choose their experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Every expert is as likely as any other.
    Uniform,
    /// The experts are in 8 groups of neighbours; a token chooses within 4 groups.
    Grouped,
}

/// The number of groups of [`Routing::Grouped`].
const GROUPS: u32 = 8;
/// The number of groups within which a token chooses.
const LIMIT: usize = 4;

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Grouped => "4 of 8 groups",
        })
    }
}

/// Returns the choices of `tokens` tokens of `rank`, `[tokens, top_k]`. Equal arguments give equal choices.
///
/// # Panics
/// If a token has fewer experts to choose from than `top_k`, which is at most half the experts.
pub(super) fn choices(
    routing: Routing,
    seed: u64,
    rank: u32,
    tokens: u32,
    experts: u32,
    top_k: u32,
) -> Vec<i32> {
    let mut random = fastrand::Rng::with_seed(seed << 20 ^ u64::from(rank));
    let mut out = Vec::new();
    for _ in 0..tokens {
        let mut allowed: Vec<u32> = match routing {
            Routing::Uniform => (0..experts).collect(),
            Routing::Grouped => {
                let mut groups: Vec<u32> = (0..GROUPS).collect();
                random.shuffle(&mut groups);
                let taken = &groups[..LIMIT];
                let group_of = |expert: &u32| expert * GROUPS / experts;
                (0..experts)
                    .filter(|expert| taken.contains(&group_of(expert)))
                    .collect()
            }
        };
        random.shuffle(&mut allowed);
        let chosen = allowed[..top_k as usize].iter();
        out.extend(chosen.map(|expert| i32::try_from(*expert).expect("at most 4096 experts")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_token_chooses_distinct_experts_within_four_groups() {
        for rank in 0..3 {
            let all = choices(Routing::Grouped, 5, rank, 40, 256, 8);
            for token in all.chunks(8) {
                let distinct: BTreeSet<_> = token.iter().collect();
                let groups: BTreeSet<_> = token.iter().map(|expert| expert / 32).collect();
                assert!(distinct.len() == 8 && groups.len() <= 4, "{token:?}");
            }
        }
        assert_eq!(
            choices(Routing::Uniform, 5, 1, 4, 16, 2),
            choices(Routing::Uniform, 5, 1, 4, 16, 2)
        );
        assert_ne!(
            choices(Routing::Uniform, 5, 1, 4, 16, 2),
            choices(Routing::Uniform, 5, 2, 4, 16, 2)
        );
    }
}
