//! Methods that open descriptors for events, and DevX subscriptions.

use super::event_queue::{self, Purpose};
use super::frame::{Call, Method, Spec};
use super::subscriptions::can_raise;
use crate::errno::Errno;
use std::sync::Arc;

const ASYNC_EVENT: u16 = 0x10;
const ASYNC_EVENT_FD: u16 = 0;
const DEVX: u16 = 0x1000;
const DEVX_EVENT: u16 = 0x1005;
const DEVX_EVENT_FD: u16 = 0x1000;
const DEVX_EVENT_FLAGS: u16 = 0x1001;
const DEVX_COMMANDS: u16 = 0x1004;
const DEVX_COMMANDS_FD: u16 = 0x1000;
const SUBSCRIBE_FD: u16 = 0x1000;
const SUBSCRIBE_OBJECT: u16 = 0x1001;
const SUBSCRIBE_TYPES: u16 = 0x1002;
const SUBSCRIBE_EVENTFD: u16 = 0x1003;
const SUBSCRIBE_COOKIE: u16 = 0x1004;

pub(super) const METHODS: &[Method] = &[
    Method {
        object: ASYNC_EVENT,
        method: 0,
        attributes: &[Spec::object(ASYNC_EVENT_FD)],
        run: open_asynchronous,
    },
    Method {
        object: DEVX_EVENT,
        method: 0x1000,
        attributes: &[
            Spec::object(DEVX_EVENT_FD),
            Spec::number(DEVX_EVENT_FLAGS, 4),
        ],
        run: open_devx,
    },
    Method {
        object: DEVX_COMMANDS,
        method: 0x1000,
        attributes: &[Spec::object(DEVX_COMMANDS_FD)],
        run: open_devx_commands,
    },
    Method {
        object: DEVX,
        method: 0x1003,
        attributes: &[
            Spec::object(SUBSCRIBE_FD),
            Spec::object(SUBSCRIBE_OBJECT).optional(),
            Spec::bytes(SUBSCRIBE_TYPES, 2),
            Spec::number(SUBSCRIBE_EVENTFD, 4).optional(),
            Spec::number(SUBSCRIBE_COOKIE, 8).optional(),
        ],
        run: subscribe,
    },
];

fn open_asynchronous(call: &Call<'_>) -> Result<(), Errno> {
    call.context.open_events(Purpose::Asynchronous, |fd| {
        call.put_object(ASYNC_EVENT_FD, fd)
    })
}

fn open_devx(call: &Call<'_>) -> Result<(), Errno> {
    const OMIT_DATA: u32 = 1;
    call.context.devx()?;
    let flags = call.u32(DEVX_EVENT_FLAGS)?;
    if flags & !OMIT_DATA != 0 {
        return Err(Errno::EINVAL);
    }
    let purpose = Purpose::Devx {
        omit_data: flags & OMIT_DATA != 0,
    };
    call.context
        .open_events(purpose, |fd| call.put_object(DEVX_EVENT_FD, fd))
}

fn open_devx_commands(call: &Call<'_>) -> Result<(), Errno> {
    call.context.devx()?;
    call.context.open_events(Purpose::DevxCommands, |fd| {
        call.put_object(DEVX_COMMANDS_FD, fd)
    })
}

fn subscribe(call: &Call<'_>) -> Result<(), Errno> {
    call.context.devx()?;
    let object = if call.has(SUBSCRIBE_OBJECT) {
        let handle = call.object(SUBSCRIBE_OBJECT)?;
        Some(call.context.handles().devx(handle)?)
    } else {
        None
    };
    if !call.context.device()?.tells_events(object.is_some()) {
        return Err(Errno::EOPNOTSUPP);
    }
    let fd = call.object(SUBSCRIBE_FD)?;
    let cookie = call.u64(SUBSCRIBE_COOKIE)?;
    let types = call.bytes(SUBSCRIBE_TYPES)?;
    if types.len() % 2 != 0 {
        return Err(Errno::EINVAL);
    }
    let kinds = types
        .chunks_exact(2)
        .map(|number| u16::from_ne_bytes([number[0], number[1]]))
        .map(|kind| {
            can_raise(object, kind)
                .then_some(kind)
                .ok_or(Errno::EOPNOTSUPP)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let eventfd = if call.has(SUBSCRIBE_EVENTFD) {
        // One counter cannot distinguish several kinds of events.
        if kinds.len() != 1 {
            return Err(Errno::EINVAL);
        }
        let copy = event_queue::copy_eventfd(call.u32(SUBSCRIBE_EVENTFD)?)?;
        Some(Arc::new(copy))
    } else {
        None
    };
    let mut subscriptions = call.context.subscriptions();
    let queue = subscriptions.find(fd, |purpose| matches!(purpose, Purpose::Devx { .. }))?;
    subscriptions.subscribe(&queue, object, &kinds, cookie, eventfd.as_ref());
    Ok(())
}
