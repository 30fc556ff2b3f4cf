//! XRC domains: what target QPs and SRQs of several contexts of a device have in common. The kernel opens and closes them for a
//! context, by themselves or by a file that contexts agree on.

use crate::device::context::{Context, own, refuse_busy};
use crate::device::error::DeviceError;
use crate::device::state::HcaState;
use mlx5_prm::cmd::Opcode;

/// An XRC domain.
#[derive(Debug)]
pub(crate) struct Xrcd {
    /// Contexts that have it, once for each time that they opened it.
    pub(crate) users: Vec<u32>,
    /// The file by which others can open it.
    pub(crate) file: Option<XrcFile>,
}

/// A file, by which contexts agree on an XRC domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcFile {
    /// Device that it lies on.
    pub device: u64,
    /// Number of its inode on that device.
    pub inode: u64,
}

impl Xrcd {
    pub(crate) fn is_open_in(&self, context: u32) -> bool {
        self.users.contains(&context)
    }

    /// Takes one of the context's openings away. True if no context has the domain any more.
    pub(crate) fn close(&mut self, context: u32) -> bool {
        if let Some(at) = self.users.iter().position(|user| *user == context) {
            self.users.swap_remove(at);
        }
        self.users.is_empty()
    }
}

impl Context {
    /// Opens an XRC domain: a new one, or the one that `file` stands for on this device. Its number.
    ///
    /// Without `create` the file must have one, with `exclusive` it must have none.
    ///
    /// # Errors
    ///
    /// `EAGAIN` and `EINVAL` of the kernel for those two; none left; a failure asked for (`ALLOC_XRCD`).
    pub fn open_xrcd(
        &self,
        file: Option<XrcFile>,
        create: bool,
        exclusive: bool,
    ) -> Result<u32, DeviceError> {
        let refused = |errno| DeviceError::Os {
            call: "opening an XRC domain",
            errno,
        };
        self.with(|hca, context| {
            if let Some(file) = file {
                let found = hca
                    .xrcds
                    .numbers(|xrcd| xrcd.file == Some(file))
                    .first()
                    .copied();
                match found {
                    Some(_) if exclusive => return Err(refused(libc::EINVAL)),
                    None if !create => return Err(refused(libc::EAGAIN)),
                    None => {}
                    Some(number) => {
                        if let Some(xrcd) = hca.xrcds.get_mut(number) {
                            xrcd.users.push(context);
                        }
                        return Ok(number);
                    }
                }
            }
            hca.strike(Opcode::ALLOC_XRCD)?;
            let limit = hca.xrcds.limit();
            let xrcd = Xrcd {
                users: vec![context],
                file,
            };
            let what = "XRC domain";
            hca.xrcds
                .insert(xrcd)
                .ok_or(DeviceError::Full { what, limit })
        })
    }

    /// Closes an XRC domain; it ends when all contexts that opened it have closed it.
    ///
    /// # Errors
    ///
    /// Busy while SRQs or QPs of this context use its last opening.
    pub fn close_xrcd(&self, number: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| {
            let openings = hca.xrcds.get(number).map_or(0, |xrcd| {
                xrcd.users.iter().filter(|user| **user == context).count()
            });
            own(openings != 0, "XRC domain", number)?;
            if openings == 1 {
                let users = xrcd_users(hca, number, context);
                refuse_busy("XRC domain", number, users)?;
            }
            hca.strike(Opcode::DEALLOC_XRCD)?;
            close(hca, number, context);
            Ok(())
        })
    }
}

/// Takes one opening away.
pub(in crate::device) fn close(hca: &mut HcaState, number: u32, context: u32) {
    if hca
        .xrcds
        .get_mut(number)
        .is_some_and(|xrcd| xrcd.close(context))
    {
        hca.xrcds.remove(number);
    }
}

/// Objects of a context that use an XRC domain.
pub(in crate::device) fn xrcd_users(hca: &HcaState, number: u32, context: u32) -> usize {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_lives_as_long_as_a_context_has_it_open() {
        let mut xrcd = Xrcd {
            users: vec![1, 2, 1],
            file: None,
        };
        assert!(!xrcd.close(1));
        assert!(xrcd.is_open_in(1));
        assert!(!xrcd.close(1));
        assert!(!xrcd.is_open_in(1));
        assert!(!xrcd.close(1), "2 has it still");
        assert!(xrcd.close(2));
    }
}
