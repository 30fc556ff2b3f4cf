//! Which way the HCAs reach memory of this rank.

use super::Team;
use crate::verbs::Export;

impl Team {
    /// How the HCA of each rail reaches this rank's memory: name, rail, and on which rung of the ladder it stands. The heap of
    /// queues first, then the windows by number.
    #[must_use]
    pub fn exports(&self) -> Vec<(String, usize, Export)> {
        let heaps = self.rails.iter().enumerate().filter_map(|(rail, of)| {
            let export = of.export()?;
            Some(("control heap".to_owned(), rail, export.clone()))
        });
        let windows = self.windows();
        let windows = windows.iter().flat_map(|window| {
            let named = |(rail, export)| (format!("window {}", window.window.id), rail, export);
            window.exports().into_iter().enumerate().map(named)
        });
        heaps.chain(windows).collect()
    }
}
