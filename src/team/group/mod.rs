//! Who belongs to a team, agreed on through the store.

mod choose;
mod record;
mod rules;
#[cfg(test)]
mod rules_model;
