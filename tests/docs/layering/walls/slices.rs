//! Types whose own `impl` stands in many files: one object, cut into slices that all reach its fields.

use super::code::Code;
use super::compare::Count;
use super::modules::Crate;
use std::collections::{BTreeMap, BTreeSet};

/// The file of the type, and one more for its public face.
const MOST: usize = 2;

/// Of each type with an inherent `impl` in more files than `MOST` the number of the files, by its module and name. The file that
/// defines the type is one of them, with an `impl` or without.
pub(crate) fn counted(of: &Crate) -> BTreeMap<String, Count> {
    let mut types: BTreeMap<(usize, String), BTreeSet<usize>> = BTreeMap::new();
    for (at, file) in of.files.iter().enumerate() {
        for path in own_impls(&file.code) {
            let Some(name) = path.last().cloned() else {
                continue;
            };
            let home = of.home_of(file.module, &path).unwrap_or(at);
            types.entry((home, name)).or_default().extend([home, at]);
        }
    }
    let sliced = types.into_iter().filter(|(_, files)| files.len() > MOST);
    let counts = sliced.map(|((home, name), files)| {
        let place = format!("{}/{}::{name}", of.folder, of.module_of(home));
        let count = Count {
            number: files.len(),
            detail: files
                .iter()
                .map(|&file| of.files[file].path.to_owned())
                .collect(),
        };
        (place, count)
    });
    // Of two types of one name in one module the one in more files.
    counts.fold(BTreeMap::new(), |mut all, (place, count)| {
        let kept: &mut Count = all.entry(place).or_default();
        if count.number > kept.number {
            *kept = count;
        }
        all
    })
}

/// The paths of the types that `impl Type { .. }` names; not those of `impl Trait for Type`.
fn own_impls(code: &Code) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        if code.word(at) != "impl" || !matches!(code.before(at), "" | ";" | "}" | "]" | "{" | ")") {
            at += 1;
            continue;
        }
        let start = code.generics_end(at + 1);
        let Some(open) = (start..code.len()).find(|&at| code.word(at) == "{") else {
            break;
        };
        let header = start..open;
        let is_of_a_trait = header
            .clone()
            .any(|at| code.word(at) == "for" && code.word(at + 1) != "<");
        let path = header.take_while(|&at| code.is_name(at) || code.word(at) == "::");
        let path = path
            .filter(|&at| code.is_name(at))
            .take_while(|&at| code.word(at) != "where");
        let path: Vec<String> = path.map(|at| code.word(at).to_owned()).collect();
        if !is_of_a_trait && !path.is_empty() {
            found.push(path);
        }
        at = code.group_end(open);
    }
    found
}
