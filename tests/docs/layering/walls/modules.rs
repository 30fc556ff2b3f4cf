//! A crate as its modules and the files that they stand in, read from the root on. Files that only tests declare are not there.

use super::super::Source;
use super::body::Body;
use super::code::Code;
use std::collections::{BTreeMap, HashMap};

pub(crate) struct Crate<'a> {
    /// What its own code may call it beside `crate`.
    pub(crate) name: &'a str,
    /// Where its sources lie: `src`.
    pub(crate) folder: &'a str,
    pub(crate) files: Vec<File<'a>>,
    /// The root is the first.
    pub(crate) modules: Vec<Module>,
    texts: HashMap<&'a str, &'a str>,
}

pub(crate) struct File<'a> {
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
    pub(crate) code: Code,
    /// Its own, and not one that is written inside it.
    pub(crate) module: usize,
    /// Where the files of its child modules lie.
    pub(crate) children: String,
}

pub(crate) struct Module {
    pub(crate) file: usize,
    pub(crate) parent: Option<usize>,
    pub(crate) children: BTreeMap<String, usize>,
    pub(crate) body: Body,
}

impl<'a> Crate<'a> {
    /// The crate whose `lib.rs` lies in `folder`.
    pub(crate) fn read(name: &'a str, folder: &'a str, sources: &'a [Source]) -> Self {
        let of_folder = sources.iter().filter(|source| {
            let rest = source.path.strip_prefix(folder);
            rest.is_some_and(|rest| rest.starts_with('/'))
        });
        let mut read = Self {
            name,
            folder,
            files: Vec::new(),
            modules: Vec::new(),
            texts: of_folder
                .map(|source| (source.path.as_str(), source.text.as_str()))
                .collect(),
        };
        let root = read.load(&format!("{folder}/lib.rs"), folder, None);
        assert!(root.is_some(), "{folder}/lib.rs is not there");
        read
    }

    /// `engine` for src/engine/peer.rs and src/engine.rs, `lib` for src/lib.rs.
    pub(crate) fn module_of(&self, file: usize) -> &'a str {
        let inside = &self.files[file].path[self.folder.len() + 1..];
        let first = inside.split('/').next().unwrap_or(inside);
        first.trim_end_matches(".rs")
    }

    /// The module of the file at `path`, whose child modules lie in `children`; none if there is no such file, or if it is all tests.
    fn load(&mut self, path: &str, children: &str, parent: Option<usize>) -> Option<usize> {
        let (&path, &text) = self.texts.get_key_value(path)?;
        let code = Code::of(text);
        if code.is_test {
            return None;
        }
        let body = Body::of(&code);
        self.files.push(File {
            path,
            text,
            code,
            module: self.modules.len(),
            children: children.to_owned(),
        });
        Some(self.place(body, self.files.len() - 1, children, parent))
    }

    /// The module of `body`, with all that it declares.
    fn place(&mut self, mut body: Body, file: usize, folder: &str, parent: Option<usize>) -> usize {
        let (files, inner) = (
            std::mem::take(&mut body.files),
            std::mem::take(&mut body.inner),
        );
        let module = self.modules.len();
        self.modules.push(Module {
            file,
            parent,
            children: BTreeMap::new(),
            body,
        });
        for name in files {
            let below = format!("{folder}/{name}");
            let beside = self.load(&format!("{below}.rs"), &below, Some(module));
            let child = beside.or_else(|| {
                let path = format!("{below}/mod.rs");
                self.load(&path, &below, Some(module))
            });
            if let Some(child) = child {
                self.modules[module].children.insert(name, child);
            }
        }
        for (name, body) in inner {
            let below = format!("{folder}/{name}");
            let child = self.place(body, file, &below, Some(module));
            self.modules[module].children.insert(name, child);
        }
        module
    }
}
