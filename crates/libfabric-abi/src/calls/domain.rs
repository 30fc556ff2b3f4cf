//! What a domain opens; registrations are in [`registration`](super::registration).

use std::ffi::{c_int, c_void};

use crate::bindings::{
    fi_av_attr, fi_cq_attr, fi_info, fi_ops_domain, fid_av, fid_cq, fid_domain, fid_ep,
};

calls! {
    /// Opens an address vector.
    fn fi_av_open(domain: *mut fid_domain, attr: *mut fi_av_attr, av: *mut *mut fid_av, context: *mut c_void) -> c_int
        = fi_ops_domain.av_open of (*domain).ops;

    /// Opens a completion queue. Programs use the one of [`later`](crate::later::fi_cq_open), whose structure later releases may read.
    fn fi_cq_open(domain: *mut fid_domain, attr: *mut fi_cq_attr, cq: *mut *mut fid_cq, context: *mut c_void) -> c_int
        = fi_ops_domain.cq_open of (*domain).ops;

    /// Makes an endpoint, to which queues and a vector are bound before it is enabled.
    fn fi_endpoint(domain: *mut fid_domain, info: *mut fi_info, ep: *mut *mut fid_ep, context: *mut c_void) -> c_int
        = fi_ops_domain.endpoint of (*domain).ops;
}
