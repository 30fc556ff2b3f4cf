//! Counts the objects that use another object, which therefore cannot end.

use crate::device::state::HcaState;

/// Returns the number of objects that use a protection domain.
pub(crate) fn pd_users(hca: &HcaState, pdn: u32) -> usize {
    hca.keys.iter().filter(|(_, key)| key.pdn == pdn).count()
        + hca.qps.iter().filter(|(_, qp)| qp.pdn == pdn).count()
        + hca.srqs.iter().filter(|(_, srq)| srq.pdn == pdn).count()
}

/// Takes one opening of an XRC domain away. The domain ends with its last opening.
pub(crate) fn close_xrcd(hca: &mut HcaState, number: u32, context: u32) {
    if hca
        .xrcds
        .get_mut(number)
        .is_some_and(|xrcd| xrcd.close(context))
    {
        hca.xrcds.remove(number);
    }
}

/// Returns the number of objects of a context that use an XRC domain.
pub(crate) fn xrcd_users(hca: &HcaState, number: u32, context: u32) -> usize {
    let srqs = hca
        .srqs
        .iter()
        .filter(|(_, srq)| srq.context == context && srq.xrcd() == Some(number));
    let qps = hca
        .qps
        .iter()
        .filter(|(_, qp)| qp.context == context && qp.xrcd() == Some(number));
    srqs.count() + qps.count()
}
