//! What operations do, one after the other: the memory of both ranks.

use test_support::abi::ops::{OPS_ADD, OpItem, OpKind, OpStep};

use crate::rig::{Call, Rig};

/// The windows of two ranks.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) memory: [Vec<u8>; 2],
    /// Immediates that each rank was sent.
    pub(crate) immediates: [Vec<u32>; 2],
}

impl Model {
    /// Both windows filled at random, and so the model.
    pub(crate) fn new(rig: &Rig, rng: &mut fastrand::Rng) -> Self {
        let memory = [0, 1].map(|side: usize| {
            let bytes: Vec<u8> = (0..rig.bytes).map(|_| rng.u8(..)).collect();
            rig.ends[side].write(0, &bytes);
            bytes
        });
        Self {
            memory,
            immediates: [vec![], vec![]],
        }
    }

    /// A call of rank `side`.
    pub(crate) fn call(&mut self, side: usize, call: &Call) {
        let Call { step, items } = call;
        for item in items {
            self.item(side, *step, item);
        }
        if matches!(step.kind, OpKind::SIGNAL | OpKind::PUT_SIGNAL) {
            self.signal(1 - side, *step, &items[0]);
        }
    }

    fn item(&mut self, side: usize, step: OpStep, item: &OpItem) {
        let peer = 1 - side;
        match step.kind {
            OpKind::PUT | OpKind::PUT_SIGNAL => {
                self.copy([side, peer], item.local, item.remote, item.bytes);
            }
            OpKind::PUT_TWO => {
                self.copy([side, peer], item.local, item.remote, item.bytes);
                let behind = item.remote + item.bytes;
                self.copy([side, peer], item.second, behind, item.second_bytes);
            }
            OpKind::PUT_IMM => {
                self.copy([side, peer], item.local, item.remote, item.bytes);
                self.immediates[peer].push(item.value as u32);
            }
            OpKind::GET => self.copy([peer, side], item.remote, item.local, item.bytes),
            OpKind::PUT_VALUE => {
                for k in 0..step.bytes / 4 {
                    let word = (item.value as u32).wrapping_add(k);
                    let at = item.remote + u64::from(4 * k);
                    self.store(peer, at, &word.to_le_bytes());
                }
            }
            OpKind::AMO => {
                let old = self.load(peer, item.remote, step.bytes);
                let new = result(step.amo, old, item.value, item.compare);
                let bytes = step.bytes as usize;
                self.store(peer, item.remote, &new.to_le_bytes()[..bytes]);
                if item.local != u64::MAX {
                    self.store(side, item.local, &old.to_le_bytes()[..bytes]);
                }
            }
            _ => {}
        }
    }

    fn signal(&mut self, at: usize, step: OpStep, item: &OpItem) {
        let old = match step.options & OPS_ADD {
            0 => 0,
            _ => self.load(at, item.signal, step.bytes),
        };
        let new = old.wrapping_add(item.value).to_le_bytes();
        self.store(at, item.signal, &new[..step.bytes as usize]);
    }

    fn copy(&mut self, [from, to]: [usize; 2], source: u64, target: u64, bytes: u64) {
        let source = source as usize..(source + bytes) as usize;
        let bytes = self.memory[from][source].to_vec();
        self.store(to, target, &bytes);
    }

    fn store(&mut self, at: usize, offset: u64, bytes: &[u8]) {
        self.memory[at][offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// A word of 4 or 8 bytes.
    pub(crate) fn load(&self, at: usize, offset: u64, bytes: u32) -> u64 {
        let word = &self.memory[at][offset as usize..][..bytes as usize];
        word.iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Both windows are as the model says.
    #[track_caller]
    pub(crate) fn check(&self, rig: &Rig, what: &str) {
        for side in [0, 1] {
            let found: Vec<u8> = rig.ends[side].window_at(0, self.memory[side].len());
            let wrong = found
                .iter()
                .zip(&self.memory[side])
                .position(|(a, b)| a != b);
            assert!(
                wrong.is_none(),
                "{what}: rank {side}, first wrong byte {:#x}: {:02x?} instead of {:02x?}",
                wrong.unwrap(),
                &found[wrong.unwrap()..][..8.min(found.len() - wrong.unwrap())],
                &self.memory[side][wrong.unwrap()..][..8.min(found.len() - wrong.unwrap())],
            );
        }
        assert_eq!(rig.findings(), [""; 0], "{what}");
    }
}

/// Returns what atomic number `amo` makes of a word; of 4 bytes in the low half.
pub(crate) fn result(amo: u32, old: u64, value: u64, compare: u64) -> u64 {
    match amo {
        0 => old.wrapping_add(value),
        1 if old == compare => value,
        1 => old,
        2 => value,
        3 => old & value,
        4 => old | value,
        5 => old ^ value,
        _ => unreachable!("six atomics"),
    }
}
