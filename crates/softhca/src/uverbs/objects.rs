//! Protection domains and memory regions: what ends and shows them. They are made by commands in `write`.

use super::frame::{Call, Method, Spec};
use crate::errno::Errno;

const PD: u16 = 1;
const MR: u16 = 7;
const QUERY_PD_HANDLE: u16 = 0x1000;
const QUERY_PD_PDN: u16 = 0x1001;

pub(super) const METHODS: &[Method] = &[
    Method {
        object: PD,
        method: 0,
        attributes: &[Spec::object(0)],
        run: dealloc_pd,
    },
    // A method of the driver: the number by which DevX commands name the PD.
    Method {
        object: PD,
        method: 0x1000,
        attributes: &[Spec::object(QUERY_PD_HANDLE), Spec::output(QUERY_PD_PDN, 4)],
        run: query_pd,
    },
    Method {
        object: MR,
        method: 1,
        attributes: &[Spec::object(0)],
        run: dereg_mr,
    },
    Method {
        object: MR,
        method: 3,
        attributes: &[
            Spec::object(0),
            Spec::output(1, 4),
            Spec::output(2, 4),
            Spec::output(3, 8),
            Spec::output(4, 8).optional(),
        ],
        run: query_mr,
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

fn dereg_mr(call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.object(0)?;
    let mr = call.context.handles().mr(handle)?;
    call.context.device()?.dereg_mr(mr.lkey)?;
    call.context.handles().remove(handle);
    Ok(())
}

fn query_mr(call: &Call<'_>) -> Result<(), Errno> {
    let mr = call.context.handles().mr(call.object(0)?)?;
    call.put_pod(1, &mr.lkey)?;
    call.put_pod(2, &mr.rkey)?;
    call.put_pod(3, &mr.length)?;
    call.put_pod(4, &mr.iova)
}
