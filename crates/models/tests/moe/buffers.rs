//! The configurations of send buffers in flight, and the rules with the property that each keeps.

use models::moe::Property;
use models::moe::buffers::{Buffers, Link, Rows, Rule};

const DEAD: &[Link] = &[Link::Dead];

fn pool(buffers: u8, ahead: u8) -> Buffers {
    Buffers::new(Rows::Pool(buffers), ahead)
}

/// Two links die at so many calls.
fn two_deaths(buffers: u8, ahead: u8, moments: u8) -> Buffers {
    Buffers {
        sick: 2,
        kinds: DEAD,
        moments,
        ..pool(buffers, ahead)
    }
}

/// One link fails, is back and fails again, and the host may end its QP.
fn again(rows: Rows, ahead: u8) -> Buffers {
    Buffers {
        moments: 2,
        times: 2,
        ends: 1,
        ..Buffers::new(rows, ahead)
    }
}

pub(crate) fn holds() -> Vec<Buffers> {
    vec![
        pool(3, 0),
        pool(4, 1),
        Buffers {
            kinds: &[Link::Stopped],
            ..again(Rows::Pool(4), 1)
        },
        two_deaths(4, 0, 1),
        two_deaths(5, 0, 2),
        two_deaths(6, 1, 1),
        // No pool, however often links fail.
        again(Rows::BySource, 1),
        again(Rows::ZeroCopy, 1),
        Buffers {
            sick: 2,
            kinds: &[Link::Stopped],
            ..Buffers::new(Rows::BySource, 1)
        },
        Buffers {
            suspicions: 2,
            ..pool(4, 1)
        },
        // The ring to a peer is full.
        Buffers {
            ring: 3,
            ..pool(4, 1)
        },
        // More links fail than the pool was made for.
        Buffers {
            exhausts: true,
            ..again(Rows::Pool(2), 0)
        },
        Buffers {
            exhausts: true,
            ..two_deaths(3, 1, 2)
        },
    ]
}

/// With `WV_TEST_FULL=1`.
pub(crate) fn larger() -> Vec<Buffers> {
    vec![
        again(Rows::Pool(4), 1),
        Buffers {
            sick: 2,
            moments: 2,
            ..Buffers::new(Rows::BySource, 1)
        },
        two_deaths(6, 1, 2),
        Buffers {
            kinds: &[Link::OneWay],
            ..two_deaths(5, 0, 1)
        },
        Buffers {
            ring: 4,
            ..two_deaths(4, 0, 1)
        },
    ]
}

/// One buffer less is too few.
///
/// Two links that fail in one direction need as many as two that die at two calls.
pub(crate) fn too_few() -> Vec<(Buffers, Property)> {
    let loss = |buffers| (buffers, Property::S3);
    vec![
        loss(pool(2, 0)),
        loss(pool(3, 1)),
        loss(two_deaths(3, 0, 1)),
        loss(two_deaths(4, 0, 2)),
        loss(two_deaths(5, 1, 1)),
        // Words arrive from both, so neither is a suspect: more than where both are silent.
        loss(Buffers {
            kinds: &[Link::OneWay],
            ..two_deaths(4, 0, 1)
        }),
    ]
}

/// Each breaks the property named with it.
pub(crate) fn mutants() -> Vec<(Buffers, Property)> {
    let one_way = Buffers {
        kinds: &[Link::OneWay],
        ..pool(4, 1)
    };
    let ended = Buffers {
        ends: 1,
        ..pool(4, 1)
    };
    let full = Buffers {
        ring: 3,
        ..one_way.clone()
    };
    let exhausted = Buffers {
        exhausts: true,
        ..pool(2, 0)
    };
    let by_source = Buffers::new(Rows::BySource, 1);
    [
        (pool(3, 0), Rule::Pool, Property::S3),
        (pool(4, 1), Rule::Free, Property::S1),
        (pool(4, 1), Rule::Own, Property::S2),
        (one_way.clone(), Rule::Set, Property::S3),
        (by_source, Rule::Set, Property::S1),
        (two_deaths(4, 0, 1), Rule::Suspect, Property::S3),
        // Where a set has nothing in flight, any QP keeps its order.
        (pool(4, 1).without(&[Rule::Set]), Rule::OneQp, Property::C1),
        (ended.clone(), Rule::Flushed, Property::S1),
        (ended, Rule::Numbers, Property::E2),
        (one_way, Rule::Once, Property::S4),
        (full, Rule::Room, Property::S3),
        (exhausted, Rule::Mask, Property::S3),
        (
            Buffers::new(Rows::ZeroCopy, 1),
            Rule::HandsOut,
            Property::S1,
        ),
    ]
    .map(|(model, rule, property)| (model.without(&[rule]), property))
    .into()
}
