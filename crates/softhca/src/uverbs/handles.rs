//! Handles: the numbers by which user space names its objects.
//!
//! A handle is good for one kind of object. As in the kernel, a handle of another kind gives `EINVAL`, and a number that is no handle gives
//! `ENOENT`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::device::DevxObject;
use crate::errno::Errno;
use crate::uverbs::queues::{VerbsCq, VerbsQp, VerbsSrq};

/// An object that user space has a handle of.
#[derive(Clone)]
pub(super) enum Object {
    Pd { pdn: u32 },
    Mr(Mr),
    Window { rkey: u32 },
    Umem { id: u32 },
    Uar { page_id: u32 },
    Ah,
    Devx { object: DevxObject },
    Cq(Arc<VerbsCq>),
    Qp(Arc<VerbsQp>),
    Srq(Arc<VerbsSrq>),
    Xrcd { number: u32 },
}

/// The attributes of a memory region, as `ibv_query_mr` shows them.
#[derive(Clone, Copy)]
pub(super) struct Mr {
    pub(super) lkey: u32,
    pub(super) rkey: u32,
    pub(super) length: u64,
    pub(super) iova: u64,
}

/// The handles of a context.
#[derive(Default)]
pub(super) struct Handles {
    objects: BTreeMap<u32, Object>,
    last: u32,
}

impl Handles {
    pub(super) fn insert(&mut self, object: Object) -> Result<u32, Errno> {
        // A handle is not used again before all others were. So a stale handle is noticed.
        let free = (1..=u32::MAX)
            .map(|step| self.last.wrapping_add(step))
            .find(|handle| *handle != 0 && !self.objects.contains_key(handle))
            .ok_or(Errno::ENOMEM)?;
        self.last = free;
        self.objects.insert(free, object);
        Ok(free)
    }

    pub(super) fn remove(&mut self, handle: u32) {
        self.objects.remove(&handle);
    }

    pub(super) fn clear(&mut self) {
        self.objects.clear();
    }

    fn find<T>(&self, handle: u32, pick: impl FnOnce(&Object) -> Option<T>) -> Result<T, Errno> {
        pick(self.objects.get(&handle).ok_or(Errno::ENOENT)?).ok_or(Errno::EINVAL)
    }

    /// Returns the PD number of `handle`.
    pub(super) fn pd(&self, handle: u32) -> Result<u32, Errno> {
        self.find(handle, |object| match object {
            Object::Pd { pdn } => Some(*pdn),
            _ => None,
        })
    }

    pub(super) fn mr(&self, handle: u32) -> Result<Mr, Errno> {
        self.find(handle, |object| match object {
            Object::Mr(mr) => Some(*mr),
            _ => None,
        })
    }

    /// Sets the new attributes of a region that has changed.
    pub(super) fn set_mr(&mut self, handle: u32, mr: Mr) {
        if let Some(object @ Object::Mr(_)) = self.objects.get_mut(&handle) {
            *object = Object::Mr(mr);
        }
    }

    /// Returns the rkey that the window of `handle` was made with.
    pub(super) fn window(&self, handle: u32) -> Result<u32, Errno> {
        self.find(handle, |object| match object {
            Object::Window { rkey } => Some(*rkey),
            _ => None,
        })
    }

    /// Returns the UMEM id of `handle`.
    pub(super) fn umem(&self, handle: u32) -> Result<u32, Errno> {
        self.find(handle, |object| match object {
            Object::Umem { id } => Some(*id),
            _ => None,
        })
    }

    /// Returns the UAR page id of `handle`.
    pub(super) fn uar(&self, handle: u32) -> Result<u32, Errno> {
        self.find(handle, |object| match object {
            Object::Uar { page_id } => Some(*page_id),
            _ => None,
        })
    }

    /// Checks that `handle` is an address handle.
    pub(super) fn ah(&self, handle: u32) -> Result<(), Errno> {
        self.find(handle, |object| matches!(object, Object::Ah).then_some(()))
    }

    pub(super) fn cq(&self, handle: u32) -> Result<Arc<VerbsCq>, Errno> {
        self.find(handle, |object| match object {
            Object::Cq(queue) => Some(queue.clone()),
            _ => None,
        })
    }

    pub(super) fn qp(&self, handle: u32) -> Result<Arc<VerbsQp>, Errno> {
        self.find(handle, |object| match object {
            Object::Qp(queue_pair) => Some(queue_pair.clone()),
            _ => None,
        })
    }

    pub(super) fn srq(&self, handle: u32) -> Result<Arc<VerbsSrq>, Errno> {
        self.find(handle, |object| match object {
            Object::Srq(queue) => Some(queue.clone()),
            _ => None,
        })
    }

    /// Returns the number of the XRC domain of `handle`.
    pub(super) fn xrcd(&self, handle: u32) -> Result<u32, Errno> {
        self.find(handle, |object| match object {
            Object::Xrcd { number } => Some(*number),
            _ => None,
        })
    }

    /// Returns the object of `handle` if DevX commands may read and change it. That holds for objects that DevX made, and for queues made
    /// by verbs.
    pub(super) fn for_commands(&self, handle: u32) -> Result<DevxObject, Errno> {
        self.find(handle, |object| match object {
            Object::Devx { object } => Some(*object),
            Object::Cq(queue) => Some(DevxObject::Cq(queue.cqn())),
            Object::Qp(queue_pair) => Some(queue_pair.object()),
            Object::Srq(queue) => Some(queue.object()),
            _ => None,
        })
    }

    pub(super) fn devx(&self, handle: u32) -> Result<DevxObject, Errno> {
        self.find(handle, |object| match object {
            Object::Devx { object } => Some(*object),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_good_for_its_own_kind_until_it_is_removed() {
        let mut handles = Handles::default();
        let pd = handles.insert(Object::Pd { pdn: 7 }).unwrap();
        let umem = handles.insert(Object::Umem { id: 9 }).unwrap();
        assert_eq!(handles.pd(pd), Ok(7));
        assert_eq!(handles.umem(umem), Ok(9));
        assert_eq!(handles.umem(pd), Err(Errno::EINVAL));
        assert_eq!(handles.uar(umem), Err(Errno::EINVAL));
        handles.remove(pd);
        assert_eq!(handles.pd(pd), Err(Errno::ENOENT));
        assert_ne!(handles.insert(Object::Pd { pdn: 8 }).unwrap(), pd);
        handles.clear();
        assert_eq!(handles.umem(umem), Err(Errno::ENOENT));
    }

    #[test]
    fn handles_wrap_past_zero_and_past_those_in_use() {
        let mut handles = Handles::default();
        let first = handles.insert(Object::Umem { id: 1 }).unwrap();
        assert_eq!(first, 1);
        handles.last = u32::MAX;
        assert_eq!(handles.insert(Object::Umem { id: 2 }), Ok(2));
    }
}
