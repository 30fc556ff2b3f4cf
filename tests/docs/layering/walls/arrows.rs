//! Arrows between the files of a crate: from a file whose code names an item to the file that defines the item, through every
//! `pub use` between them.

use super::body::Named;
use super::modules::Crate;
use std::collections::BTreeMap;

pub(crate) struct Arrow {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Where the first such name stands in `from`.
    pub(crate) line: usize,
    /// As it is written there.
    pub(crate) name: String,
}

/// What a path leads to.
#[derive(Clone, Copy)]
enum Target {
    Module(usize),
    /// An item, by the module that defines it.
    ItemOf(usize),
}

impl Crate<'_> {
    /// One for each two files, in the order of the files.
    pub(crate) fn arrows(&self) -> Vec<Arrow> {
        let mut found: BTreeMap<(usize, usize), (usize, String)> = BTreeMap::new();
        for (at, module) in self.modules.iter().enumerate() {
            for named in &module.body.named {
                let Some(to) = self.file_of(at, named) else {
                    continue;
                };
                if to != module.file {
                    let first = found.entry((module.file, to));
                    first.or_insert_with(|| (named.line, named.path.join("::")));
                }
            }
        }
        let arrows = found.into_iter().map(|((from, to), (line, name))| Arrow {
            from,
            to,
            line,
            name,
        });
        arrows.collect()
    }

    /// An arrow of `Self::arrows` for a reader.
    pub(crate) fn spelled(&self, arrow: &Arrow) -> String {
        let [from, to] = [arrow.from, arrow.to].map(|file| self.files[file].path);
        format!("{from}:{} -> {to} ({})", arrow.line, arrow.name)
    }

    /// The file that defines what is named; none for what another crate defines. A module that is named alone is only the way to
    /// what is named of it, so it is none either.
    fn file_of(&self, module: usize, named: &Named) -> Option<usize> {
        match self.resolved(module, &named.path, &mut Vec::new())? {
            Target::ItemOf(home) => Some(self.modules[home].file),
            Target::Module(home) => named.is_glob.then(|| self.modules[home].file),
        }
    }

    /// The file that defines the type which `module` calls `path`.
    pub(crate) fn home_of(&self, module: usize, path: &[String]) -> Option<usize> {
        match self.resolved(module, path, &mut Vec::new())? {
            Target::ItemOf(home) => Some(self.modules[home].file),
            Target::Module(_) => None,
        }
    }

    /// `asked` holds the names that wait for this one: imports may go in circles too.
    fn resolved<'b>(
        &'b self,
        module: usize,
        path: &'b [String],
        asked: &mut Vec<(usize, &'b str)>,
    ) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut reached = match first.as_str() {
            "self" => Target::Module(module),
            "super" => Target::Module(self.modules[module].parent?),
            "crate" => Target::Module(0),
            name if name == self.name => Target::Module(0),
            name => self.looked_up(module, name, asked)?,
        };
        while let (Target::Module(module), Some((name, behind))) = (reached, rest.split_first()) {
            reached = match name.as_str() {
                "super" => Target::Module(self.modules[module].parent?),
                name => self.looked_up(module, name, asked)?,
            };
            rest = behind;
        }
        Some(reached)
    }

    /// Returns what `name` is in `module`.
    fn looked_up<'b>(
        &'b self,
        module: usize,
        name: &'b str,
        asked: &mut Vec<(usize, &'b str)>,
    ) -> Option<Target> {
        if asked.contains(&(module, name)) {
            return None;
        }
        let here = &self.modules[module];
        if let Some(child) = here.children.get(name) {
            return Some(Target::Module(*child));
        }
        if here.body.items.contains(name) {
            return Some(Target::ItemOf(module));
        }
        asked.push((module, name));
        let found = match here.body.imports.get(name) {
            Some(path) => self.resolved(module, path, asked),
            None => here.body.globs.iter().find_map(|path| {
                match self.resolved(module, path, asked)? {
                    Target::Module(all) => self.looked_up(all, name, asked),
                    Target::ItemOf(_) => None,
                }
            }),
        };
        asked.pop();
        found
    }
}
