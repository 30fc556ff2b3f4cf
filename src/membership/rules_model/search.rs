//! A search through all states of the model.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};

use super::{Model, State};

/// How each state was reached: the state before it and the name of the step.
#[derive(Default)]
struct Way {
    steps: Vec<(u32, u16)>,
    names: Vec<String>,
    numbers: HashMap<String, u16>,
}

impl Way {
    /// Number of the state that `name` leads to from the state `from`.
    fn step(&mut self, from: u32, name: String) -> u32 {
        let names = &mut self.names;
        let number = *self.numbers.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            u16::try_from(names.len() - 1).expect("some dozens of names")
        });
        self.steps.push((from, number));
        u32::try_from(self.steps.len()).expect("fewer than 2^32 states")
    }

    fn to(&self, mut state: u32) -> String {
        let mut lines = Vec::new();
        while state != 0 {
            let (from, name) = self.steps[state as usize - 1];
            lines.push(format!("  {}", self.names[usize::from(name)]));
            state = from;
        }
        lines.reverse();
        lines.join("\n")
    }
}

/// 128 bits of a state, in one pass: two of ten million are alike once in 10^24 runs.
#[derive(Default)]
struct Fingerprint(u64, u64);

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, word: u64) {
        let mix = |state: u64, word: u64, by: u64| {
            let product = u128::from(state ^ word) * u128::from(by);
            let bytes = product.to_le_bytes();
            let (low, high) = bytes.split_at(8);
            let half = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            half(low) ^ half(high)
        };
        self.0 = mix(
            self.0.wrapping_add(0x9e37_79b9_7f4a_7c15),
            word,
            0xa076_1d64_78bd_642f,
        );
        self.1 = mix(
            self.1.wrapping_add(0xe703_7ed1_a0b4_28db),
            word,
            0x8ebc_6af0_9c88_c6e3,
        );
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn fingerprint(state: &State) -> u128 {
    let mut hasher = Fingerprint::default();
    state.hash(&mut hasher);
    u128::from(hasher.0) << 64 | u128::from(hasher.1)
}

/// Looks at every state; the violation with the way to it, and how many states there are.
///
/// States that were looked at are known by their fingerprints.
pub(super) fn explore(model: &Model) -> (Option<String>, usize) {
    let start = model.start();
    let mut seen = HashSet::from([fingerprint(&start)]);
    let mut todo = VecDeque::from([(0u32, start)]);
    let mut way = Way::default();
    while let Some((at, state)) = todo.pop_front() {
        let ends = match model.successors(&state) {
            Ok(next) if next.is_empty() => model.stuck(&state),
            Ok(next) => {
                for (name, next) in next {
                    if seen.insert(fingerprint(&next)) {
                        todo.push_back((way.step(at, name), next));
                    }
                }
                None
            }
            Err(violation) => Some(violation),
        };
        if let Some(violation) = ends {
            return (Some(format!("{violation}\n{}", way.to(at))), seen.len());
        }
    }
    (None, seen.len())
}
