//! What the store holds of ranks that are gone.

use std::time::Duration;

use warpverbs::team::Store;

use crate::deaths::CONFIG;
use crate::fleet::{Fleet, Point};

/// Names that records begin with.
const ROOTS: [&str; 9] = [
    "config",
    "failed",
    "generation",
    "group",
    "hello",
    "rank",
    "recover",
    "reunite",
    "welcome",
];

/// The keys of the store, and the folders that they are in.
fn records(store: &dyn Store) -> Vec<String> {
    let mut found: Vec<String> = ROOTS.map(str::to_owned).into();
    let mut next = 0;
    while let Some(key) = found.get(next).cloned() {
        let names = store.list(&key).unwrap();
        found.extend(names.into_iter().map(|name| format!("{key}/{name}")));
        next += 1;
    }
    found.sort_unstable();
    found
}

#[test]
fn the_number_of_records_does_not_grow_with_replacements() {
    let replacements = match std::env::var_os("WV_TEST_FULL") {
        Some(_) => 20,
        None => 3,
    };
    let mut fleet = Fleet::new(3, Duration::from_secs(20), CONFIG);
    fleet.until_whole(1, 1);
    let mut before = Vec::new();
    for generation in 2..2 + replacements {
        let mut dead = fleet.remove(1);
        dead.die_at(Point::Send);
        fleet.dead.push(dead);
        fleet.until_members(2 * generation - 2, &[0, 2]);
        fleet.join(1);
        fleet.until_members(2 * generation - 1, &[0, 1, 2]);
        fleet.until_whole(2 * generation - 1, 1);
        // Tidying comes after the calls are let go on.
        let store = fleet.store();
        let plain = |key: &String| {
            let key = key.replace(&format!("generation/1/{generation}"), "generation/1/N");
            key.replace(&format!("1.{generation}"), "1.N")
        };
        let start = std::time::Instant::now();
        let now = loop {
            let now: Vec<String> = records(store.as_ref()).iter().map(plain).collect();
            let old = |key: &String| {
                let mut names = key.split(['/', '-']);
                names.any(|name| (1..generation).any(|of| name == format!("1.{of}")))
            };
            // No proposal is open, so promises go as well, also those of generations that stay.
            let goes = |key: &String| old(key) || key.starts_with("group/promise");
            if !now.iter().any(goes) || start.elapsed() > crate::fleet::LONG {
                break now;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if generation > 2 {
            assert_eq!(now, before, "after {} replacements", generation - 1);
        }
        before = now;
    }
    eprintln!(
        "{} records and folders after {replacements} replacements",
        before.len()
    );
    fleet.end();
}
