//! The end of QPs, with a report: each QP goes to Err and drains before the HCA is asked to destroy it.
//!
//! A plain drop destroys QPs as they are. That also ends work in flight, but reports no error of the HCA.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use super::peer_qp::PeerQp;
use crate::deadline::{Looks, deadline_in};

/// Time between two looks at a QP that has not drained.
const STEP: Duration = Duration::from_micros(200);

/// The report on the QPs of a team that was closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// QPs that were connected, went to Err, and have nothing left to send.
    pub drained: usize,
    /// QPs that were not connected: they had nothing to drain.
    pub idle: usize,
    /// QPs that the HCA did not move to Err, or that had not drained within the team's deadline, in words.
    pub refused: Vec<String>,
    /// QPs that the HCA did not destroy, and keys of windows that it did not take back, in words. Their memory stays until the
    /// process ends.
    pub leaked: Vec<String>,
}

impl CloseReport {
    /// Returns whether nothing was refused, and nothing is left.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.refused.is_empty() && self.leaked.is_empty()
    }
}

impl fmt::Display for CloseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (drained, idle) = (self.drained, self.idle);
        let (refused, leaked) = (self.refused.len(), self.leaked.len());
        write!(
            f,
            "{drained} QPs drained, {idle} were idle, {refused} refused, {leaked} leaked"
        )?;
        let texts = self.refused.iter().chain(&self.leaked);
        texts.into_iter().try_for_each(|text| write!(f, "; {text}"))
    }
}

/// Ends the QPs of `QPs`, waits at most for `patience` until all have drained, and destroys them.
pub(in crate::team) fn close(mut peer_qps: Vec<PeerQp>, patience: Duration) -> CloseReport {
    let mut report = CloseReport::default();
    let mut draining = Vec::new();
    // All QPs are moved to Err before the first wait, so that their work ends at the same time.
    for peer_qp in &mut peer_qps {
        match (peer_qp.is_connected(), peer_qp.end()) {
            (_, Err(error)) => report.refused.push(format!("{}: {error}", named(peer_qp))),
            (true, Ok(())) => draining.push(&*peer_qp),
            (false, Ok(())) => report.idle += 1,
        }
    }
    let deadline = deadline_in(patience);
    for peer_qp in draining {
        match drain(peer_qp, deadline) {
            Ok(()) => report.drained += 1,
            Err(reason) => report.refused.push(format!("{}: {reason}", named(peer_qp))),
        }
    }
    for peer_qp in peer_qps {
        let name = named(&peer_qp);
        if let Err(error) = peer_qp.destroy() {
            report.leaked.push(format!("{name}: {error}"));
        }
    }
    report
}

fn named(peer_qp: &PeerQp) -> String {
    let (qpn, peer, rail) = (peer_qp.qpn(), peer_qp.peer(), peer_qp.rail());
    format!("QP {qpn:#x} to rank {peer} on rail {rail}")
}

/// Waits until the HCA has taken, and ended, every WQE that was posted to `link` and rung.
fn drain(peer_qp: &PeerQp, deadline: Instant) -> Result<(), String> {
    let mut at = (0, 0);
    for left in Looks::until(deadline) {
        at = peer_qp.sent().map_err(|error| error.to_string())?;
        if at.0 == at.1 {
            return Ok(());
        }
        thread::sleep(STEP.min(left));
    }
    let (taken, told) = at;
    Err(format!("not drained: at WQEBB {taken} of {told}"))
}
