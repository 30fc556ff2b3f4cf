//! The configurations of waits, and the mutants with the property that each breaks.

use models::moe::Property;
use models::moe::waits::{Kind, Mutant, Waits};

use Kind::{Credit, Held, Room, Work};

fn of(kinds: &[Kind], deadline: u8) -> Waits {
    Waits {
        kinds: kinds.into(),
        deadline,
        mutant: None,
    }
}

pub(crate) fn holds() -> Vec<Waits> {
    vec![
        of(&[Credit, Work, Room], 8),
        of(&[Work, Work, Credit], 8),
        of(&[Work, Credit, Work], 1),
        // A caller that does not want to wait.
        of(&[Credit, Work, Room], 0),
        of(&[Held, Credit], 4),
    ]
}

/// Each breaks the property named with it.
pub(crate) fn mutants() -> Vec<(Waits, Property)> {
    let two = of(&[Credit, Work], 4);
    [
        (two.clone(), Mutant::NoLookAfterTheClock, Property::T1),
        (two.clone(), Mutant::PassedIsLate, Property::T1),
        (of(&[Work], 0), Mutant::PassedIsLate, Property::T1),
        (two.clone(), Mutant::PollsLast, Property::T1),
        (two.clone(), Mutant::OneCompletion, Property::T1),
        (of(&[Room], 4), Mutant::RoomIsSilent, Property::T2),
        (two.clone(), Mutant::BeatClockRestarts, Property::T2),
        (two, Mutant::OnlyMembers, Property::T2),
        (of(&[Held], 4), Mutant::OnlyMembers, Property::T2),
        (of(&[Held], 4), Mutant::HeldIsSilent, Property::T2),
        (of(&[Held], 4), Mutant::HeldBeatsOn, Property::T3),
    ]
    .map(|(model, mutant, property)| {
        let model = Waits {
            mutant: Some(mutant),
            ..model
        };
        (model, property)
    })
    .into()
}
