//! Faces: `mod.rs` says what its folder is and offers names of it. What it defines itself is a part that no file is named after.

use super::code::Code;
use super::compare::Count;
use super::modules::{Crate, File};
use std::collections::BTreeMap;

/// The items of each `mod.rs` beside those of a face, by its folder.
pub(crate) fn counted(of: &Crate) -> BTreeMap<String, Count> {
    let faces = of
        .files
        .iter()
        .filter(|file| file.path.ends_with("/mod.rs"));
    let counts = faces.map(|file| {
        let detail = items(file);
        let number = detail.len();
        (file.children.clone(), Count { number, detail })
    });
    counts.collect()
}

/// Returns what a face has beside documentation, `mod name;` and `pub use`.
pub(crate) fn items(file: &File) -> Vec<String> {
    let code: &Code = &file.code;
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        if let Some(end) = code.attribute_end(at) {
            at = end;
            continue;
        }
        let word = code.visibility_end(at);
        let end = code.item_end(at);
        let is_module = code.word(word) == "mod" && code.word(word + 2) == ";";
        let is_offer = code.word(word) == "use" && word > at;
        if !is_module && !is_offer {
            let words: Vec<&str> = (word..end.min(word + 3)).map(|at| code.word(at)).collect();
            found.push(format!(
                "{}:{}: a face has documentation, `mod name;` and `pub use` only, and here is `{} ..`",
                file.path,
                code.line(at),
                words.join(" ")
            ));
        }
        at = end.max(at + 1);
    }
    found
}
