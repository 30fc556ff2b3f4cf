//! Methods that end and show protection domains. A command in `write` makes them.

use super::frame::{Call, Method, Spec};
use crate::errno::Errno;

const PD: u16 = 1;
const QUERY_PD_HANDLE: u16 = 0x1000;
const QUERY_PD_PDN: u16 = 0x1001;

pub(super) const METHODS: &[Method] = &[
    Method {
        object: PD,
        method: 0,
        attributes: &[Spec::object(0)],
        run: dealloc_pd,
    },
    // This method of the driver returns the number by which DevX commands name the PD.
    Method {
        object: PD,
        method: 0x1000,
        attributes: &[Spec::object(QUERY_PD_HANDLE), Spec::output(QUERY_PD_PDN, 4)],
        run: query_pd,
    },
];

fn dealloc_pd(call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.object(0)?;
    let pdn = call.context.handles().pd(handle)?;
    call.context.device()?.dealloc_pd(pdn)?;
    call.context.handles().remove(handle);
    Ok(())
}

fn query_pd(call: &Call<'_>) -> Result<(), Errno> {
    let pdn = call.context.handles().pd(call.object(QUERY_PD_HANDLE)?)?;
    call.put_pod(QUERY_PD_PDN, &pdn)
}
