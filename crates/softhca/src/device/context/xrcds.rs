//! XRC domains of a context. The kernel opens and closes a domain either without a file, or by a file that contexts agree on.

use super::refuse::{own, refuse_busy};
use crate::device::error::DeviceError;
use crate::device::objects::xrcd::{XrcFile, Xrcd};
use crate::device::state::HcaState;
use crate::device::state::users::{close_xrcd, xrcd_users};
use mlx5_prm::cmd::Opcode;

/// Opens an XRC domain. Returns its number. See [`Context::open_xrcd`](super::Context::open_xrcd).
pub(super) fn open(
    hca: &mut HcaState,
    context: u32,
    file: Option<XrcFile>,
    create: bool,
    exclusive: bool,
) -> Result<u32, DeviceError> {
    let refused = |errno| DeviceError::Os {
        call: "opening an XRC domain",
        errno,
    };
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
}

/// Closes an XRC domain. The domain ends when all contexts that opened it have closed it.
pub(super) fn close(hca: &mut HcaState, context: u32, number: u32) -> Result<(), DeviceError> {
    let openings = hca.xrcds.get(number).map_or(0, |xrcd| {
        xrcd.users.iter().filter(|user| **user == context).count()
    });
    own(openings != 0, "XRC domain", number)?;
    if openings == 1 {
        let users = xrcd_users(hca, number, context);
        refuse_busy("XRC domain", number, users)?;
    }
    hca.strike(Opcode::DEALLOC_XRCD)?;
    close_xrcd(hca, number, context);
    Ok(())
}
