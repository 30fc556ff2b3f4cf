//! What commands of the device ask of the engine.

use super::completion::flush;
use super::intake::doorbell;
use crate::device::state::{Engine, HcaState, Slot};

/// The engine, as commands of the device call it.
#[derive(Debug)]
pub(crate) struct ForCommands;

impl Engine for ForCommands {
    fn take_doorbells(&self, hca: &mut HcaState) {
        doorbell::take_all(hca);
    }

    fn fail(&self, slot: &mut Slot, qpn: u32) {
        flush::enter_error(slot, qpn);
    }
}
