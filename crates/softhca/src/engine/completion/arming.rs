//! Completion events: the engine takes armings from the UAR pages, and raises an event when an armed CQ gets an entry.

use crate::device::Event;
use crate::device::objects::arming::Notice;
use crate::device::state::HcaState;

/// Takes the armings from the UAR pages that are due. Returns whether it found one.
///
/// The register of a page holds one value, and all CQs of a context are armed through the same register. The store that is found names one
/// CQ, but stores that it has overwritten may have named others. So all CQs of the page are looked at.
pub(in crate::engine) fn take(hca: &mut HcaState) -> bool {
    let now_ns = hca.now_ns;
    let mut armed = Vec::new();
    let mut last = None;
    for &page_id in hca.watch.due() {
        if let Some(uar) = hca.uars.get(page_id)
            && !uar.cqs.is_empty()
            && let Some(named) = uar.page.take_arm()
        {
            armed.extend(uar.cqs.iter().map(|&cqn| (cqn, cqn == named)));
            last = Some(page_id);
        }
    }
    if let Some(page_id) = last {
        hca.watch.found(page_id);
    }
    for &(cqn, named) in &armed {
        if let Some(cq) = hca.cqs.get_mut(cqn) {
            let notice = cq.look_at_arm_word(named, now_ns);
            follow(hca, cqn, notice);
        }
    }
    !armed.is_empty()
}

/// Notes that an entry was written to CQ `cqn`. `solicited`: the entry counts for a CQ that is armed for solicited entries alone.
pub(super) fn entry_written(hca: &mut HcaState, cqn: u32, solicited: bool) {
    let now_ns = hca.now_ns;
    if let Some(cq) = hca.cqs.get_mut(cqn) {
        let notice = cq.entry_written(solicited, now_ns);
        follow(hca, cqn, notice);
    }
}

/// Raises the events that moderation has held back long enough. Returns when the next event is due.
pub(in crate::engine) fn look_at_moderated(hca: &mut HcaState) -> Option<u64> {
    let now_ns = hca.now_ns;
    let mut at = 0;
    while let Some(&(due_ns, cqn)) = hca.moderated.get(at) {
        if due_ns > now_ns {
            at += 1;
            continue;
        }
        hca.moderated.swap_remove(at);
        if let Some(cq) = hca.cqs.get_mut(cqn) {
            let notice = cq.judge(now_ns);
            follow(hca, cqn, notice);
        }
    }
    hca.moderated.iter().map(|(due_ns, _)| *due_ns).min()
}

/// Raises the event of CQ `cqn` now or notes when it is due, as `notice` says.
pub(in crate::engine) fn follow(hca: &mut HcaState, cqn: u32, notice: Notice) {
    match notice {
        Notice::Nothing => {}
        Notice::At(due_ns) => hca.moderated.push((due_ns, cqn)),
        Notice::Now => {
            if let Some(cq) = hca.cqs.get(cqn) {
                let context = cq.context;
                hca.raise(context, Event::CqCompletion(cqn));
            }
        }
    }
}
