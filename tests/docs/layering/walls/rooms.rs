//! Rooms of a folder: the table of floors in the documentation of its module, and the arrows that go against it. docs/adding.md
//! describes the table to its writers.

use super::arrows::Arrow;
use super::faces::items;
use super::modules::Crate;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A folder with more files has a table.
pub(crate) const MOST_FILES: usize = 12;
const HEADING: &str = "Rooms";

/// Floors from the top down; on each the rooms as they are written, `peer.rs` or `wire/`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) floors: Vec<Vec<String>>,
}

impl Table {
    /// The table below the heading in the `//!` lines of a file; none without the heading, an error for a heading without a table.
    pub(crate) fn of(text: &str) -> Option<Result<Self, String>> {
        let docs = text.lines().filter_map(|line| line.strip_prefix("//!"));
        let docs = docs.map(|line| line.strip_prefix(' ').unwrap_or(line));
        let mut below = docs.skip_while(|line| {
            let title = line.trim_start_matches('#');
            title.len() == line.len() || title.trim() != HEADING
        });
        below.next()?;
        let mut section = below.take_while(|line| !line.starts_with('#'));
        if !section.any(|line| line == "```text") {
            return Some(Err(format!(
                "the heading {HEADING} has no block of text below it"
            )));
        }
        let rows = section.take_while(|line| *line != "```");
        // A line that begins with blanks goes on with the words of the line above.
        let rows = rows.filter(|row| !row.starts_with(' ') && !row.is_empty());
        let mut floors = Vec::new();
        for row in rows {
            let Some((rooms, _)) = row.split_once("  ") else {
                return Some(Err(format!(
                    "`{row}` has no two blanks between its rooms and what they are for"
                )));
            };
            floors.push(rooms.split(' ').map(str::to_owned).collect());
        }
        if floors.is_empty() {
            return Some(Err(format!("the table below {HEADING} is empty")));
        }
        Some(Ok(Self { floors }))
    }

    /// Counted from the top.
    fn floor_of(&self, room: &str) -> Option<usize> {
        self.floors
            .iter()
            .position(|floor| floor.iter().any(|name| name == room))
    }
}

/// Returns what each folder does against its table.
pub(crate) fn check(of: &Crate, arrows: &[Arrow]) -> Vec<String> {
    let violations = folders(of).flat_map(|folder| match folder {
        Ok(folder) => {
            let mut violations = folder.differences();
            violations.extend(folder.arrows_against(arrows));
            violations.extend(items(&of.files[folder.face]));
            violations
        }
        Err(words) => vec![words],
    });
    violations.collect()
}

/// Those with a table; an error for a table that cannot be read.
pub(crate) fn folders<'a>(of: &'a Crate<'a>) -> impl Iterator<Item = Result<Folder<'a>, String>> {
    let files = of.files.iter().enumerate();
    files.filter_map(move |(face, file)| {
        let table = Table::of(file.text)?;
        let table = table.map_err(|words| format!("{}: {words}", file.path));
        Some(table.map(|table| Folder::new(of, face, table)))
    })
}

/// Folders that have more than `MOST_FILES` and no table, with the number of their files.
pub(crate) fn crowded(of: &Crate) -> BTreeMap<String, usize> {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for file in &of.files {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *folders.entry(folder).or_default() += 1;
    }
    let with_table = of
        .files
        .iter()
        .filter(|file| Table::of(file.text).is_some());
    for file in with_table {
        folders.remove(&*file.children);
    }
    folders.retain(|_, files| *files > MOST_FILES);
    folders
        .into_iter()
        .map(|(folder, files)| (folder.to_owned(), files))
        .collect()
}

pub(crate) struct Folder<'a> {
    of: &'a Crate<'a>,
    /// The file with the table: `mod.rs` of the folder, or the file of its name beside it.
    pub(crate) face: usize,
    pub(crate) table: Table,
    /// Of each file of the crate its room, as a table writes it; none of a file outside the folder and of the face.
    rooms: Vec<Option<String>>,
}

impl<'a> Folder<'a> {
    fn new(of: &'a Crate, face: usize, table: Table) -> Self {
        let folder = &of.files[face].children;
        let inside: Vec<Option<&str>> = of
            .files
            .iter()
            .map(|file| file.path.strip_prefix(folder)?.strip_prefix('/'))
            .collect();
        let room_of = |path: &str| match path.split_once('/') {
            None => path.to_owned(),
            // wire.rs beside wire/ is the file of the room.
            Some((name, _)) => {
                let beside = format!("{name}.rs");
                if inside.contains(&Some(&*beside)) {
                    beside
                } else {
                    format!("{name}/")
                }
            }
        };
        let rooms = inside.iter().enumerate();
        let rooms = rooms.map(|(file, path)| path.filter(|_| file != face).map(room_of));
        Self {
            of,
            face,
            table,
            rooms: rooms.collect(),
        }
    }

    /// The floor of a file, counted from the top; none of what has no room on the table.
    pub(crate) fn floor_of(&self, file: usize) -> Option<usize> {
        self.table.floor_of(self.rooms[file].as_deref()?)
    }

    /// Between the rooms of the folder and those of the table.
    fn differences(&self) -> Vec<String> {
        let path = self.of.files[self.face].path;
        let rooms: BTreeSet<&String> = self.rooms.iter().flatten().collect();
        let mut named: BTreeSet<&String> = BTreeSet::new();
        let mut found = Vec::new();
        for name in self.table.floors.iter().flatten() {
            if !named.insert(name) {
                found.push(format!("{path}: the table of rooms has `{name}` twice"));
            }
            if !rooms.contains(name) {
                found.push(format!(
                    "{path}: the table of rooms has `{name}`, which is not in the folder"
                ));
            }
        }
        let missing = rooms.difference(&named);
        found.extend(missing.map(|room| format!("{path}: the table of rooms lacks `{room}`")));
        found
    }

    /// From a room to the face, to a floor above, or to another room of its own floor.
    fn arrows_against(&self, arrows: &[Arrow]) -> Vec<String> {
        let against = arrows.iter().filter_map(|arrow| {
            let from = self.rooms[arrow.from].as_ref()?;
            let floor = self.table.floor_of(from)?;
            let way = if arrow.to == self.face {
                format!("`{from}` uses the face above it")
            } else {
                let to = self.rooms[arrow.to].as_ref().filter(|to| *to != from)?;
                match self.table.floor_of(to)?.cmp(&floor) {
                    Ordering::Less => format!("`{from}` uses `{to}` of a floor above"),
                    Ordering::Equal => format!("`{from}` uses `{to}` of its own floor"),
                    Ordering::Greater => return None,
                }
            };
            Some(format!("{way}: {}", self.of.spelled(arrow)))
        });
        against.collect()
    }
}
