//! One of the two engines of a run, through all its lives, and its memory.

use std::sync::Arc;

use super::listen;
use crate::engine::{Engine, EngineConfig, HostMemory, RegionId};
use crate::provider::OfiDevice;

/// Bytes of a tile. Each transfer has one of its own in the memory of each end.
pub(super) const TILE: u64 = TILE_BYTES as u64;
const TILE_BYTES: usize = 40_960;
/// What the owner writes to a tile that is its alone again.
const CANARY: u8 = 0xc7;

/// An engine, and its memory, which outlives it.
pub(super) struct End {
    pub(super) engine: Engine,
    pub(super) region: RegionId,
    pub(super) address: String,
    pub(super) memory: Arc<HostMemory>,
    config: EngineConfig,
}

impl End {
    /// Returns an engine with memory for so many tiles.
    pub(super) fn new(config: EngineConfig, device: &OfiDevice, tiles: u64) -> Self {
        let memory = Arc::new(HostMemory::new(tiles * TILE).unwrap());
        Self::over(memory, config, device)
    }

    /// Returns the next life of the engine.
    pub(super) fn again(&self, device: &OfiDevice) -> Self {
        Self::over(Arc::clone(&self.memory), self.config.clone(), device)
    }

    fn over(memory: Arc<HostMemory>, config: EngineConfig, device: &OfiDevice) -> Self {
        let engine = Engine::new(device, config.clone()).unwrap();
        Self {
            region: engine.register(&memory).unwrap(),
            address: listen(&engine),
            engine,
            memory,
            config,
        }
    }

    /// Returns the address of a tile.
    pub(super) fn at(&self, tile: u64) -> u64 {
        self.memory.address() + tile * TILE
    }

    /// Writes as the owner of the memory.
    pub(super) fn put(&self, address: u64, bytes: &[u8]) {
        let offset = address - self.memory.address();
        self.memory.write(offset, bytes).unwrap();
    }

    pub(super) fn bytes(&self, address: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let offset = address - self.memory.address();
        self.memory.read(offset, &mut bytes).unwrap();
        bytes
    }

    /// Uses a tile as its owner.
    pub(super) fn cover(&self, tile: u64) {
        self.put(self.at(tile), &[CANARY; TILE_BYTES]);
    }

    /// Returns the first byte of a tile that is not as the owner has written it.
    pub(super) fn changed(&self, tile: u64) -> Option<usize> {
        let bytes = self.bytes(self.at(tile), TILE_BYTES);
        bytes.iter().position(|byte| *byte != CANARY)
    }
}
