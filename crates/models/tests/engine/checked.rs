//! Searches lists of configurations and of mutants, and fails with all that is not as expected.

use std::time::Instant;

use models::engine::account::Account;
use models::engine::counting::Counting;
use models::engine::keys::Keys;
use models::engine::notices::Notices;
use models::engine::slots::{Slot, SlotWord};
use models::engine::stream::Stream;
use models::engine::transfer::Transfer;
use models::explore::{Found, Model, search};

/// A model that is checked in several configurations.
pub(crate) trait Checked: Model<Property: PartialEq + Copy> {
    fn name(&self) -> String;
    /// States, where an independent model has counted them too.
    fn states(&self) -> Option<usize>;
}

impl<A: Account> Checked for Transfer<A> {
    fn name(&self) -> String {
        match self.mutant {
            None => self.name.to_owned(),
            Some(mutant) => format!("{} {mutant:?}", self.name),
        }
    }
    fn states(&self) -> Option<usize> {
        self.states
    }
}

impl<W: SlotWord> Checked for Slot<W> {
    fn name(&self) -> String {
        match self.mutant {
            None => format!("{} uses", self.uses),
            Some(mutant) => format!("{mutant:?}"),
        }
    }
    fn states(&self) -> Option<usize> {
        self.states
    }
}

impl Checked for Notices {
    fn name(&self) -> String {
        let Self {
            records,
            ring,
            breaks,
            mutants,
            ..
        } = self;
        format!("{records} records, ring of {ring}, {breaks} breaks {mutants:?}")
    }
    fn states(&self) -> Option<usize> {
        self.states
    }
}

impl Checked for Keys {
    fn name(&self) -> String {
        let Self {
            others,
            refusals,
            mutant,
        } = self;
        format!("{others} others, {refusals} refusals {mutant:?}")
    }
    fn states(&self) -> Option<usize> {
        None
    }
}

impl Checked for Counting {
    fn name(&self) -> String {
        let Self {
            writes,
            second,
            receives,
            failures,
            tells,
            mutant,
        } = self;
        let by = if *tells { "libfabric, " } else { "" };
        format!(
            "{by}{writes} WRITEs, {second} of a second life, {receives} receives, {failures} failures {mutant:?}"
        )
    }
    fn states(&self) -> Option<usize> {
        None
    }
}

impl Checked for Stream {
    fn name(&self) -> String {
        let Self {
            notices,
            room,
            streams,
            mutant,
        } = self;
        format!("{notices} notices, room for {room}, {streams} streams {mutant:?}")
    }
    fn states(&self) -> Option<usize> {
        None
    }
}

/// Searches each; all must hold, with as many states as an independent model has counted.
pub(crate) fn check<M: Checked>(group: &str, models: &[M]) {
    let begin = Instant::now();
    let mut wrong = Vec::new();
    let mut states = 0;
    for model in models {
        let (found, name) = (search_one(model), model.name());
        states += found.states;
        if let Some((broken, way)) = &found.violation {
            wrong.push(format!("{name}: {broken:?} after\n  {}", way.join("\n  ")));
        } else if model.states().is_some_and(|count| count != found.states) {
            let (got, want) = (found.states, model.states());
            wrong.push(format!("{name}: {got} states, expected {want:?}"));
        }
    }
    let (count, took) = (models.len(), begin.elapsed());
    println!("| {group} | {count} | {states} states | {took:.1?} |");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Those only with `WV_TEST_FULL=1`.
pub(crate) fn check_larger<M: Checked>(group: &str, models: &[M]) {
    match std::env::var_os("WV_TEST_FULL") {
        Some(_) => check(group, models),
        None => println!(
            "skipped: {} larger configurations of the engine's model ({group}), for their time: they run with WV_TEST_FULL=1",
            models.len()
        ),
    }
}

/// Searches each; each must break its property.
pub(crate) fn check_mutants<M: Checked>(group: &str, mutants: &[(M, M::Property)]) {
    let mut wrong = Vec::new();
    for (model, property) in mutants {
        let found = search_one(model);
        let broken = found.violation.map(|(broken, _)| broken.property);
        if broken != Some(*property) {
            let name = model.name();
            wrong.push(format!("{name}: breaks {broken:?}, not {property:?}"));
        }
    }
    println!("| {group} | {} mutants |", mutants.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Prints the line of one configuration.
fn search_one<M: Checked>(model: &M) -> Found<M::Property> {
    let start = Instant::now();
    let found = search(model);
    let text = match &found.violation {
        None => "holds".to_owned(),
        Some((broken, _)) => format!("breaks {:?}: {}", broken.property, broken.text),
    };
    let (name, states) = (model.name(), found.states);
    println!("{name}: {states} states, {:.1?}, {text}", start.elapsed());
    found
}
