//! Ports of a bond that QPs take in turn, where the firmware does not let a QP in Ready To Send name its port again.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use mlx5_prm::cmd::Status;

use crate::verbs::error::VerbsError;

/// What is known of the device's bond.
#[derive(Default)]
pub(super) struct Bond {
    /// The device has refused a command that names the port of a bond again.
    port_again_refused: AtomicBool,
}

impl Bond {
    /// Returns whether a QP that has its port by turn names it again in Ready To Send.
    pub(super) fn takes_port_again(&self) -> bool {
        !self.port_again_refused.load(Relaxed)
    }

    /// Leaves a QP on the port that it named on its way to Ready To Receive. This is for firmware that does not know the command
    /// or refuses it. The first time it warns; the device is not asked again.
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
