//! What a post is checked for, before the engine has it.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use libc::iovec;
use libfabric_abi::bindings::{
    FI_COMPLETION, FI_CONTEXT2, FI_DELIVERY_COMPLETE, FI_INJECT, FI_INJECT_COMPLETE, FI_MORE,
    FI_READ, FI_REMOTE_CQ_DATA, FI_TRANSMIT_COMPLETE, FI_WRITE, fi_rma_iov,
};

use crate::engine::{self, FarSpan, Kind, Level, Order, Span, Told};
use crate::handles;
use crate::objects::{Endpoint, Registration};
use crate::rules::Rule;

/// Flags of a post that are served.
const SERVED: u64 = FI_COMPLETION
    | FI_DELIVERY_COMPLETE
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_MORE
    | FI_REMOTE_CQ_DATA
    | FI_TRANSMIT_COMPLETE;

/// A post of any function of the table.
pub(super) struct Post<'a> {
    pub(super) kind: Kind,
    pub(super) near: &'a [iovec],
    pub(super) descriptors: *mut *mut c_void,
    pub(super) far: &'a [fi_rma_iov],
    pub(super) peer: u64,
    pub(super) context: *mut c_void,
    pub(super) data: u64,
    pub(super) flags: u64,
    /// `fi_inject_write` and its kin, which have no completion.
    pub(super) is_quiet: bool,
}

impl Post<'_> {
    /// Checks it against what the manual demands, and hands it to the endpoint.
    ///
    /// # Safety
    ///
    /// `descriptors` is null, or there is one for each range.
    pub(super) unsafe fn hand(self, endpoint: &Arc<Endpoint>) -> Result<isize, c_int> {
        let domain = &endpoint.domain;
        let profile = domain.profile;
        self.check_rights(endpoint)?;
        let bytes = self.check_lengths(endpoint)?;
        let is_inline = self.flags & FI_INJECT != 0;
        if is_inline && (bytes > profile.inline_bytes() || self.kind == Kind::Read) {
            let most = profile.inline_bytes();
            return Err(Rule::Inline.broken(format_args!("({bytes} bytes, of {most})")));
        }
        // SAFETY: the caller's word.
        let descriptors = unsafe { self.descriptors() };
        let registrations = self.registrations(endpoint, &descriptors, is_inline)?;
        let near = self.near(&registrations)?;
        let data = (self.flags & FI_REMOTE_CQ_DATA != 0).then_some(self.data);
        let data = data.map(|data| {
            u32::try_from(data)
                .map_err(|_| Rule::CqData.broken(format_args!("({data:#x}, of 4 bytes)")))
        });
        let data = data.transpose()?;
        let own = is_inline.then(|| taken(&near, bytes)).transpose()?;
        endpoint.with_work(|work| {
            let bound = work.bound();
            let peer = bound.vector.address(self.peer)?;
            let wanted = !bound.selective || self.flags & FI_COMPLETION != 0;
            let has_context = profile.mode() & FI_CONTEXT2 != 0;
            let near = match &own {
                Some(own) => vec![Span {
                    address: handles::address(own.as_ptr()),
                    bytes,
                }],
                None => near,
            };
            work.post(Order {
                kind: self.kind,
                peer,
                near,
                far: self.far.iter().map(far).collect(),
                _own: own,
                registrations: registrations.into_iter().flatten().collect(),
                context: handles::address(self.context),
                marks: has_context && wanted && !self.is_quiet,
                told: Told {
                    level: level(self.flags),
                    wanted: wanted && !self.is_quiet,
                },
                data,
            })
        })?;
        Ok(0)
    }

    fn check_rights(&self, endpoint: &Endpoint) -> Result<(), c_int> {
        let right = match self.kind {
            Kind::Read => FI_READ,
            Kind::Write => FI_WRITE,
        };
        if !endpoint.may(right) {
            let caps = endpoint.caps;
            return Err(Rule::Capability.broken(format_args!("({right:#x}, of {caps:#x})")));
        }
        let refused = self.flags & !SERVED;
        if refused != 0 {
            return Err(Rule::Flags.broken(format_args!("({refused:#x})")));
        }
        Ok(())
    }

    /// Both sides have as many bytes, and no more than the endpoint takes.
    fn check_lengths(&self, endpoint: &Endpoint) -> Result<usize, c_int> {
        let profile = endpoint.domain.profile;
        let most = profile.ranges();
        let ranges = self.near.len().max(self.far.len());
        if ranges > most {
            return Err(Rule::TooManyRanges.broken(format_args!("({ranges}, of {most})")));
        }
        let near = self.near.iter().map(|range| range.iov_len);
        let near = near.fold(0, usize::saturating_add);
        let far = self.far.iter().map(|range| range.len);
        let far = far.fold(0, usize::saturating_add);
        if near != far {
            return Err(Rule::UnequalRanges.broken(format_args!("({near} and {far} bytes)")));
        }
        let longest = profile.longest();
        if near > longest {
            return Err(Rule::TooLong.broken(format_args!("({near} bytes, of {longest})")));
        }
        Ok(near)
    }

    /// # Safety
    ///
    /// As [`Self::hand`].
    unsafe fn descriptors(&self) -> Vec<usize> {
        if self.descriptors.is_null() {
            return Vec::new();
        }
        // SAFETY: the caller's word.
        let all = (0..self.near.len()).map(|at| unsafe { *self.descriptors.add(at) });
        all.map(|it| handles::address(it)).collect()
    }

    /// The registration of each range: those that are needed, and those that are named.
    fn registrations(
        &self,
        endpoint: &Endpoint,
        descriptors: &[usize],
        is_inline: bool,
    ) -> Result<Vec<Option<Arc<Registration>>>, c_int> {
        let needs = endpoint.domain.needs_descriptors && !is_inline;
        let ranges = self.near.iter().enumerate();
        ranges
            .map(|(at, range)| {
                let descriptor = descriptors.get(at).copied().filter(|it| *it != 0);
                match descriptor {
                    _ if range.iov_len == 0 => Ok(None),
                    Some(descriptor) => self.named(endpoint, descriptor).map(Some),
                    None if needs => Err(Rule::NoDescriptor.broken("")),
                    None => Ok(None),
                }
            })
            .collect()
    }

    fn named(&self, endpoint: &Endpoint, descriptor: usize) -> Result<Arc<Registration>, c_int> {
        let registration = handles::peek::<Registration>(descriptor);
        let registration = registration
            .ok_or_else(|| Rule::UnknownDescriptor.broken(format_args!("({descriptor:#x})")))?;
        if !Arc::ptr_eq(&registration.domain, &endpoint.domain) {
            return Err(Rule::OtherDomain.broken("(a descriptor and an endpoint)"));
        }
        let right = match self.kind {
            Kind::Read => FI_READ,
            Kind::Write => FI_WRITE,
        };
        if registration.access & right == 0 {
            let access = registration.access;
            return Err(Rule::LocalAccess.broken(format_args!("({access:#x}, without {right:#x})")));
        }
        Ok(registration)
    }

    /// Where the ranges are in this process.
    fn near(&self, registrations: &[Option<Arc<Registration>>]) -> Result<Vec<Span>, c_int> {
        let ranges = self.near.iter().zip(registrations);
        ranges
            .map(|(range, registration)| {
                let first = handles::address(range.iov_base);
                let bytes = range.iov_len;
                let address = match registration {
                    None => Some(first),
                    Some(registration) => registration.place(first as u64, bytes),
                };
                let address = address.ok_or_else(|| {
                    Rule::OutsideRegistration.broken(format_args!("({first:#x}, {bytes} bytes)"))
                })?;
                Ok(Span { address, bytes })
            })
            .collect()
    }
}

fn far(range: &fi_rma_iov) -> FarSpan {
    FarSpan {
        address: range.addr,
        key: range.key,
        bytes: range.len,
    }
}

fn level(flags: u64) -> Level {
    if flags & FI_DELIVERY_COMPLETE != 0 {
        Level::Delivery
    } else if flags & FI_INJECT_COMPLETE != 0 && flags & FI_TRANSMIT_COMPLETE == 0 {
        Level::Inject
    } else {
        Level::Transmit
    }
}

/// The bytes of an inline operation, which the program may use again at once.
fn taken(near: &[Span], bytes: usize) -> Result<Box<[u8]>, c_int> {
    let mut own = vec![0; bytes].into_boxed_slice();
    let mut done = 0;
    for span in near {
        let room = &mut own[done..done + span.bytes];
        engine::read(span.address, room)
            .map_err(|_| Rule::MemoryGone.broken(format_args!("({:#x})", span.address)))?;
        done += span.bytes;
    }
    Ok(own)
}
