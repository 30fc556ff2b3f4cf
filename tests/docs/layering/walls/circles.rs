//! Circles of files that import each other, each file by way of the others.

use super::arrows::Arrow;
use std::collections::BTreeMap;

/// The largest circle among `files`; empty if no two of them import each other. Arrows of other files do not count.
pub(crate) fn largest(files: &[usize], arrows: &[Arrow]) -> Vec<usize> {
    let mut circles = circles(files, arrows);
    circles.sort_by_key(|circle| (std::cmp::Reverse(circle.len()), circle.clone()));
    circles.into_iter().next().unwrap_or_default()
}

/// All circles, the files of each in order. (Strongly connected components of more than one file, by Tarjan.)
fn circles(files: &[usize], arrows: &[Arrow]) -> Vec<Vec<usize>> {
    let mut next: BTreeMap<usize, Vec<usize>> =
        files.iter().map(|&file| (file, Vec::new())).collect();
    for arrow in arrows.iter().filter(|arrow| files.contains(&arrow.to)) {
        if let Some(next) = next.get_mut(&arrow.from) {
            next.push(arrow.to);
        }
    }
    let mut search = Search {
        next,
        reached: BTreeMap::new(),
        open: Vec::new(),
        found: Vec::new(),
    };
    for &file in files {
        if !search.reached.contains_key(&file) {
            search.visit(file);
        }
    }
    search.found.retain(|circle| circle.len() > 1);
    search.found
}

struct Search {
    next: BTreeMap<usize, Vec<usize>>,
    /// In which order the files were reached.
    reached: BTreeMap<usize, usize>,
    /// Files whose circle is not known yet.
    open: Vec<usize>,
    found: Vec<Vec<usize>>,
}

impl Search {
    /// The earliest open file that `file` leads to, by its order. A crate has some hundreds of files, so the stack is deep enough.
    fn visit(&mut self, file: usize) -> usize {
        let order = self.reached.len();
        self.reached.insert(file, order);
        self.open.push(file);
        let mut earliest = order;
        for next in self.next[&file].clone() {
            match self.reached.get(&next) {
                None => earliest = earliest.min(self.visit(next)),
                Some(&at) if self.open.contains(&next) => earliest = earliest.min(at),
                Some(_) => {}
            }
        }
        if earliest == order {
            let start = self.open.iter().position(|&open| open == file);
            let mut circle = self.open.split_off(start.expect("it is open"));
            circle.sort_unstable();
            self.found.push(circle);
        }
        earliest
    }
}
