//! Ports of a bond that QPs take in turn, for firmware that refuses to let a QP in Ready To Send name its port again.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use mlx5_prm::cmd::Status;

use crate::verbs::error::VerbsError;

/// What this process knows of the device's bond.
#[derive(Default)]
pub(super) struct Bond {
    /// True if the device has refused a command that names the port of a bond again.
    port_again_refused: AtomicBool,
}

impl Bond {
    /// Returns whether a QP whose port follows from its turn names that port again in Ready To Send.
    pub(super) fn takes_port_again(&self) -> bool {
        !self.port_again_refused.load(Relaxed)
    }

    /// Leaves a QP on its port of the way to Ready To Receive, if the firmware does not know or refuses the command. Warns the first time;
    /// after that the device is not asked again.
    pub(super) fn leave_port(&self, error: VerbsError) -> Result<(), VerbsError> {
        let status = error.command().map(|command| command.status);
        if !matches!(status, Some(Status::BAD_OP | Status::BAD_PARAM)) {
            return Err(error);
        }
        if !self.port_again_refused.swap(true, Relaxed) {
            tracing::warn!(
                "QPs keep the port of the bond that they named before Ready To Send, and the firmware may move them to another: {error}"
            );
        }
        Ok(())
    }
}
