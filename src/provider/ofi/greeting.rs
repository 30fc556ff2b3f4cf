//! The first write of an endpoint, to some bytes that the other end has for that. After it the endpoint is connected: some providers refuse
//! thousands of posts before.
//!
//! The thread of the connection posts it, and the worker of the endpoint finds its completion. It may fail, and be posted again, as long as the
//! other end does not know this one. Where it is not done in time, the lane finds out by its own operations.

use std::thread;
use std::time::Duration;

use super::book::{Op, Refused};
use super::endpoint::Endpoint;
use super::lkeys::LocalKeys;
use super::offer::Greets;
use super::registry::Greeting;
use crate::deadline::Looks;
use crate::provider::LocalRange;

/// Time for the first write.
const MOST: Duration = Duration::from_secs(1);
/// Time between two looks.
const LOOK: Duration = Duration::from_micros(100);

/// Writes bytes of this side to the other end once. Returns whether the write is done.
pub(super) fn greet(
    endpoint: &Endpoint,
    keys: &LocalKeys,
    source: LocalRange,
    greets: Greets,
) -> bool {
    let Some(op) = Op::first(source, greets.remote, greets.key) else {
        return false;
    };
    let (ear, cq) = (endpoint.ear(), endpoint.cq());
    cq.hurry();
    let mut is_done = false;
    for left in Looks::within(MOST) {
        match ear.greeting() {
            Greeting::Done => {
                is_done = true;
                break;
            }
            Greeting::Posted => {}
            Greeting::None | Greeting::Failed => {
                // Before the post, since the completion may come before it returns.
                ear.set_greeting(Greeting::Posted);
                let keys = keys.read();
                let posted = endpoint.poster().post(&op, endpoint.first_context(), &keys);
                match posted {
                    Ok(()) => {}
                    Err(Refused::Again) => ear.set_greeting(Greeting::None),
                    Err(Refused::Failed(cause)) => {
                        tracing::debug!(
                            "lane {:#x} is not connected yet: {cause}",
                            endpoint.number()
                        );
                        ear.set_greeting(Greeting::Failed);
                    }
                }
            }
        }
        thread::sleep(left.min(LOOK));
    }
    cq.end_hurry();
    if !is_done {
        let number = endpoint.number();
        tracing::warn!("the first write of lane {number:#x} is not done after {MOST:?}");
    }
    is_done
}
