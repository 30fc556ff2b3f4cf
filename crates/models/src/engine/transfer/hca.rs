//! The steps of HCAs and of the wire between them.

use super::state::{Place, Qp, Slice, State};
use super::steps::Step;
use super::{Broken, Property, Transfer};
use crate::engine::account::Account;
use crate::explore::broken;

impl<A: Account> Transfer<A> {
    pub(super) fn slices_move(
        &self,
        state: &State<A>,
        emit: &mut impl FnMut(Step, State<A>),
    ) -> Result<(), Broken> {
        for (number, slice) in self.slices(state).iter().enumerate() {
            let mut go = |what, slice: Slice| {
                let mut next = *state;
                next.slices[number] = slice;
                emit(Step::new("slice", number, what), next);
            };
            let at = |place| Slice { place, ..*slice };
            match slice.place {
                Place::Posted => {
                    may_land(state, number)?;
                    go("lands", at(Place::Landed));
                }
                Place::Landed => go("completes", at(Place::Completed)),
                _ => {}
            }
            let waits = matches!(slice.place, Place::Posted | Place::Landed);
            if waits && state.qps[usize::from(slice.worker)] == Qp::Error {
                let mut flushed = at(Place::Flushed);
                if slice.place == Place::Posted {
                    flushed.packets = slice.worker + 1;
                }
                go("is flushed", flushed);
            }
            if let Some(qp) = slice.packets.checked_sub(1)
                && state.qps[usize::from(qp)] != Qp::Fenced
            {
                may_land(state, number)?;
                let packets = 0;
                go("lands once more", Slice { packets, ..*slice });
            }
        }
        Ok(())
    }

    pub(super) fn qps_move(&self, state: &State<A>, emit: &mut impl FnMut(Step, State<A>)) {
        for (number, qp) in state.qps.iter().enumerate() {
            let mut next = *state;
            if *qp == Qp::Ready && state.qp_fails {
                next.qps[number] = Qp::Error;
                next.qp_fails = false;
                emit(Step::new("QP", number, "fails"), next);
            }
            let holds =
                |slice: &Slice| usize::from(slice.worker) == number && slice.place.is_with_hca();
            if *qp == Qp::Error && !self.slices(state).iter().any(holds) {
                // What is under way is refused from now on.
                next.qps[number] = Qp::Fenced;
                for slice in &mut next.slices {
                    if usize::from(slice.packets) == number + 1 {
                        slice.packets = 0;
                    }
                }
                emit(Step::new("QP", number, "is reset at both ends"), next);
            }
        }
    }
}

fn may_land<A: Account>(state: &State<A>, number: usize) -> Result<(), Broken> {
    match state.user.status {
        None => Ok(()),
        Some(status) => {
            let text = format!("slice {number} lands and the transfer is {status:?}");
            broken(Property::T6, text)
        }
    }
}
