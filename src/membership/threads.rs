//! Starts the threads of a group. A panic of one of them breaks the rank down.

use std::sync::Arc;

use super::GroupError;
use super::shared::Shared;
use crate::error::OwnThread;

/// Runs `body` as the thread `name` of this rank.
///
/// # Errors
/// [`GroupError::Thread`]: the system gives no thread.
pub(super) fn spawn(
    shared: &Arc<Shared>,
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<OwnThread, GroupError> {
    let transport = &shared.transport;
    let (rank, generation) = (transport.slot(), transport.generation());
    let name = format!("{name} {rank}");
    #[cfg(test)]
    transport.may_start(&name)?;
    let span = tracing::info_span!("group", rank, generation);
    let body = move || span.in_scope(body);
    let served = Arc::downgrade(shared);
    let on_panic = move |panicked: &_| {
        if let Some(shared) = served.upgrade() {
            shared.break_down(panicked);
        }
    };
    Ok(OwnThread::spawn(&name, body, on_panic)?)
}
