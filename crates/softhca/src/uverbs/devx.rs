//! DevX: user space itself sends commands of the programmer's manual, and registers the memory that they refer to.
//!
//! If the device refuses a command, the ioctl ends with `EREMOTEIO`, and status and syndrome are in its output.

use super::event_queue::Purpose;
use super::frame::{Call, Method, Spec};
use super::handles::Object;
use super::memory::{checked_access, register_umem};
use crate::device::DeviceError;
use crate::errno::Errno;

const DEVX: u16 = 0x1000;
const OBJ: u16 = 0x1001;
const UMEM: u16 = 0x1002;

/// Length with which every command input and output begins.
const HEADER: u16 = 16;

const OTHER_IN: u16 = 0x1000;
const OTHER_OUT: u16 = 0x1001;
const EQN_VECTOR: u16 = 0x1000;
const EQN_NUMBER: u16 = 0x1001;
const OBJ_HANDLE: u16 = 0x1000;
const OBJ_IN: u16 = 0x1001;
const OBJ_OUT: u16 = 0x1002;
const ASYNC_FD: u16 = 0x1002;
const ASYNC_NUMBER: u16 = 0x1003;
const ASYNC_OUT_BYTES: u16 = 0x1004;
const UMEM_HANDLE: u16 = 0x1000;
const UMEM_ADDRESS: u16 = 0x1001;
const UMEM_LENGTH: u16 = 0x1002;
const UMEM_ACCESS: u16 = 0x1003;
const UMEM_ID: u16 = 0x1004;
const UMEM_PAGE_SIZES: u16 = 0x1005;
const UMEM_DMABUF_FD: u16 = 0x1006;

pub(super) const METHODS: &[Method] = &[
    Method {
        object: DEVX,
        method: 0x1000,
        attributes: &[
            Spec::bytes(OTHER_IN, HEADER),
            Spec::output(OTHER_OUT, HEADER),
        ],
        run: general,
    },
    Method {
        object: DEVX,
        method: 0x1002,
        attributes: &[Spec::number(EQN_VECTOR, 4), Spec::output(EQN_NUMBER, 4)],
        run: query_eqn,
    },
    Method {
        object: OBJ,
        method: 0x1000,
        attributes: OBJECT_COMMAND,
        run: create,
    },
    Method {
        object: OBJ,
        method: 0x1001,
        attributes: &[Spec::object(OBJ_HANDLE)],
        run: destroy,
    },
    Method {
        object: OBJ,
        method: 0x1002,
        attributes: OBJECT_COMMAND,
        run: modify,
    },
    Method {
        object: OBJ,
        method: 0x1003,
        attributes: OBJECT_COMMAND,
        run: query,
    },
    Method {
        object: OBJ,
        method: 0x1004,
        attributes: &[
            Spec::object(OBJ_HANDLE),
            Spec::bytes(OBJ_IN, HEADER),
            Spec::object(ASYNC_FD),
            Spec::number(ASYNC_NUMBER, 8),
            Spec::number(ASYNC_OUT_BYTES, 2),
        ],
        run: query_asynchronously,
    },
    Method {
        object: UMEM,
        method: 0x1000,
        attributes: &[
            Spec::object(UMEM_HANDLE),
            Spec::number(UMEM_ADDRESS, 8),
            Spec::number(UMEM_LENGTH, 8),
            Spec::number(UMEM_ACCESS, 4),
            Spec::output(UMEM_ID, 4),
            // Memory that is used where it lies may have any page size.
            Spec::number(UMEM_PAGE_SIZES, 8).optional(),
            Spec::object(UMEM_DMABUF_FD).optional(),
        ],
        run: reg_umem,
    },
    Method {
        object: UMEM,
        method: 0x1001,
        attributes: &[Spec::object(UMEM_HANDLE)],
        run: dereg_umem,
    },
];

const OBJECT_COMMAND: &[Spec] = &[
    Spec::object(OBJ_HANDLE),
    Spec::bytes(OBJ_IN, HEADER),
    Spec::output(OBJ_OUT, HEADER),
];

/// Sends the command in attribute `input` and writes the reply into attribute `output`, also the reply of a refused command.
fn command<T>(
    call: &Call<'_>,
    input: u16,
    output: u16,
    send: impl FnOnce(&[u8], &mut [u8]) -> Result<T, DeviceError>,
) -> Result<T, Errno> {
    let input = call.bytes(input)?;
    let mut reply = vec![0; call.len(output)];
    match send(&input, &mut reply) {
        Ok(value) => {
            call.put(output, &reply)?;
            Ok(value)
        }
        Err(error @ DeviceError::Refused { .. }) => {
            call.put(output, &reply)?;
            Err(error.into())
        }
        Err(error) => Err(error.into()),
    }
}

fn general(call: &Call<'_>) -> Result<(), Errno> {
    let device = call.context.devx()?;
    command(call, OTHER_IN, OTHER_OUT, |input, output| {
        device.devx_general(input, output)
    })
}

fn query_eqn(call: &Call<'_>) -> Result<(), Errno> {
    let eqn = call.context.devx()?.eqn(call.u32(EQN_VECTOR)?)?;
    call.put_pod(EQN_NUMBER, &eqn)
}

fn create(call: &Call<'_>) -> Result<(), Errno> {
    let device = call.context.devx()?;
    let mut made = None;
    let outcome = command(call, OBJ_IN, OBJ_OUT, |input, output| {
        made = Some(device.devx_create(input, output)?);
        Ok(())
    });
    // The device may have made the object although the reply did not reach the caller.
    let Some(object) = made else {
        return outcome;
    };
    let outcome = outcome.and_then(|()| {
        call.context.publish(Object::Devx { object }, |handle| {
            call.put_object(OBJ_HANDLE, handle)
        })
    });
    if outcome.is_err() {
        let _ = device.devx_destroy(object);
    }
    outcome
}

fn destroy(call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.object(OBJ_HANDLE)?;
    let object = call.context.handles().devx(handle)?;
    call.context.devx()?.devx_destroy(object)?;
    call.context.handles().remove(handle);
    call.context.subscriptions().forget(object);
    Ok(())
}

fn modify(call: &Call<'_>) -> Result<(), Errno> {
    let device = call.context.devx()?;
    let object = call
        .context
        .handles()
        .for_commands(call.object(OBJ_HANDLE)?)?;
    command(call, OBJ_IN, OBJ_OUT, |input, output| {
        device.devx_modify(object, input, output)
    })
}

fn query(call: &Call<'_>) -> Result<(), Errno> {
    let device = call.context.devx()?;
    let object = call
        .context
        .handles()
        .for_commands(call.object(OBJ_HANDLE)?)?;
    command(call, OBJ_IN, OBJ_OUT, |input, output| {
        device.devx_query(object, input, output)
    })
}

/// Handles a query whose answer is read from a descriptor: the caller's number, then the output, also that of a refused command.
fn query_asynchronously(call: &Call<'_>) -> Result<(), Errno> {
    /// Longest output: what a packet of a pipe holds, without the number.
    const LONGEST: usize = 4096 - 8;
    let device = call.context.devx()?;
    let object = call
        .context
        .handles()
        .for_commands(call.object(OBJ_HANDLE)?)?;
    let bytes = usize::try_from(call.u32(ASYNC_OUT_BYTES)?).map_err(|_| Errno::EINVAL)?;
    if !(usize::from(HEADER)..=LONGEST).contains(&bytes) {
        return Err(Errno::EINVAL);
    }
    let queue = call
        .context
        .subscriptions()
        .find(call.object(ASYNC_FD)?, |purpose| {
            purpose == Purpose::DevxCommands
        })?;
    let mut output = vec![0; bytes];
    match device.devx_query(object, &call.bytes(OBJ_IN)?, &mut output) {
        Ok(()) | Err(DeviceError::Refused { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let mut record = call.u64(ASYNC_NUMBER)?.to_ne_bytes().to_vec();
    record.extend(output);
    // This is as in the kernel, which lets only a limited number of answers wait.
    if queue.push(&record) {
        Ok(())
    } else {
        Err(Errno::ENOMEM)
    }
}

fn reg_umem(call: &Call<'_>) -> Result<(), Errno> {
    let device = call.context.devx()?;
    let flags = call.u32(UMEM_ACCESS)?;
    /// Flags for local write, remote write, remote read and relaxed ordering.
    const ALLOWED: u32 = 7 | 1 << 20;
    if flags & !ALLOWED != 0 {
        return Err(Errno::EINVAL);
    }
    let access = checked_access(flags)?;
    let (address, bytes) = (call.u64(UMEM_ADDRESS)?, call.u64(UMEM_LENGTH)?);
    let id = if call.has(UMEM_DMABUF_FD) {
        // With a DMA-BUF the address is an offset in it.
        let fd = call.object(UMEM_DMABUF_FD)?.cast_signed();
        device.reg_dmabuf_umem(fd, address, bytes)?
    } else {
        register_umem(device, address, bytes, access)?
    };
    let outcome = call.context.publish(Object::Umem { id }, |handle| {
        call.put_object(UMEM_HANDLE, handle)?;
        call.put_pod(UMEM_ID, &id)
    });
    if outcome.is_err() {
        let _ = device.dereg_umem(id);
    }
    outcome
}

fn dereg_umem(call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.object(UMEM_HANDLE)?;
    let id = call.context.handles().umem(handle)?;
    call.context.devx()?.dereg_umem(id)?;
    call.context.handles().remove(handle);
    Ok(())
}
