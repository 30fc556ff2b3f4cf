//! The conclusion of a transfer as a future, for any executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::engine::error::EngineError;
use crate::engine::ids::TransferId;
use crate::engine::ledger::slots::Status;
use crate::engine::transfers::Transfers;

/// The conclusion of one transfer, see [`Engine::concluded`](crate::engine::Engine::concluded).
#[derive(Debug)]
#[must_use = "a future does nothing before it is polled"]
pub struct Concluded {
    transfers: Arc<Transfers>,
    id: TransferId,
    /// The key of the future's waker, while it has one.
    key: Option<u64>,
}

impl Future for Concluded {
    type Output = Result<Status, EngineError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let look = |it: &Self| match it.transfers.poll(it.id) {
            Ok(Status::Pending) => None,
            other => Some(other),
        };
        if let Some(found) = look(&self) {
            return Poll::Ready(found);
        }
        self.forget();
        let (id, waker) = (self.id, context.waker().clone());
        self.key = Some(self.transfers.waiting().add(id, waker));
        match look(&self) {
            Some(found) => Poll::Ready(found),
            None => Poll::Pending,
        }
    }
}

impl Concluded {
    pub(in crate::engine) fn new(transfers: &Arc<Transfers>, id: TransferId) -> Self {
        Self {
            transfers: Arc::clone(transfers),
            id,
            key: None,
        }
    }

    fn forget(&mut self) {
        if let Some(key) = self.key.take() {
            self.transfers.waiting().remove(self.id, key);
        }
    }
}

impl Drop for Concluded {
    fn drop(&mut self) {
        self.forget();
    }
}
