//! XRC domains: what target QPs and SRQs of several contexts of a device have in common. The kernel opens and closes them for a
//! context, by themselves or by a file that contexts agree on.

use crate::device::context::handle::Context;
use crate::device::context::refuse::{own, refuse_busy};
use crate::device::error::DeviceError;
use crate::device::objects::xrcd::{XrcFile, Xrcd};
use crate::device::state::users::{close, xrcd_users};
use mlx5_prm::cmd::Opcode;

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
