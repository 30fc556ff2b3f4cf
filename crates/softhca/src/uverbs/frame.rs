//! The frame of a verbs ioctl: a header, attributes, and the rules that all methods have in common.
//!
//! Each method declares its attributes ([`Method`]). The checks here are the checks that the kernel's ioctl layer makes before it calls a
//! handler, with the same error numbers. By these numbers rdma-core chooses its fallbacks: `EPROTONOSUPPORT` means "this kernel does not
//! know that method or attribute".
//!
//! Source: `struct ib_uverbs_ioctl_hdr` and `struct ib_uverbs_attr` in `rdma_user_ioctl_cmds.h`;
//! `uverbs_ioctl.c` in Linux.

use bytemuck::{Pod, Zeroable};

use super::context::Context;
use super::event_queue::{EventQueue, Purpose};
use super::user;
use crate::errno::Errno;
use std::sync::Arc;

/// `struct ib_uverbs_ioctl_hdr`, without the attributes that follow.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    /// Length of header and attributes in bytes.
    length: u16,
    object: u16,
    method: u16,
    attributes: u16,
    reserved1: u64,
    /// Number of the driver: 1 is mlx5.
    driver: u32,
    reserved2: u32,
}
const _: () = assert!(size_of::<Header>() == 24);

/// `struct ib_uverbs_attr`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Attribute {
    id: u16,
    /// Length of the data in bytes; 0 for objects and descriptors.
    len: u16,
    /// `MANDATORY` from user space, `VALID_OUTPUT` from the kernel.
    flags: u16,
    reserved: u16,
    /// Up to 8 bytes of input, or an address, a handle or a descriptor.
    data: u64,
}
const _: () = assert!(size_of::<Attribute>() == 16);

const FLAGS_OFFSET: u64 = std::mem::offset_of!(Attribute, flags) as u64;
const DATA_OFFSET: u64 = std::mem::offset_of!(Attribute, data) as u64;
const MANDATORY: u16 = 1;
const VALID_OUTPUT: u16 = 2;
const DRIVER_MLX5: u32 = 1;
/// Most bytes of header and attributes, which fit in a page.
const MAX_LENGTH: u16 = 4096;

/// An ioctl method: its name, its attributes, its handler.
pub(super) struct Method {
    pub(super) object: u16,
    pub(super) method: u16,
    pub(super) attributes: &'static [Spec],
    pub(super) run: fn(&Call<'_>) -> Result<(), Errno>,
}

/// The declaration of an attribute of a method.
pub(super) struct Spec {
    id: u16,
    kind: Kind,
    mandatory: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Input data of `min` to `known` bytes. A longer input is accepted if all further bytes are zero: it is a newer, longer struct.
    Input { min: u16, known: u16 },
    /// Output, with room for at least `min` bytes.
    Output { min: u16 },
    /// A handle or descriptor, which the caller gives or the method fills in.
    Number,
}

impl Spec {
    /// Returns an input of at least `min` bytes, of which the method understands the first `known`.
    pub(super) const fn input(id: u16, min: u16, known: u16) -> Self {
        Self {
            id,
            kind: Kind::Input { min, known },
            mandatory: true,
        }
    }

    /// Returns an input that is a number of `min` to 8 bytes.
    pub(super) const fn number(id: u16, min: u16) -> Self {
        Self::input(id, min, 8)
    }

    /// Returns an input of `min` bytes or more, all of which the method looks at.
    pub(super) const fn bytes(id: u16, min: u16) -> Self {
        Self::input(id, min, u16::MAX)
    }

    pub(super) const fn output(id: u16, min: u16) -> Self {
        Self {
            id,
            kind: Kind::Output { min },
            mandatory: true,
        }
    }

    /// Returns a handle or a file descriptor.
    pub(super) const fn object(id: u16) -> Self {
        Self {
            id,
            kind: Kind::Number,
            mandatory: true,
        }
    }

    /// Returns this attribute as one that the caller may leave out.
    pub(super) const fn optional(self) -> Self {
        Self {
            mandatory: false,
            ..self
        }
    }
}

/// A call whose frame has been checked.
pub(super) struct Call<'a> {
    pub(super) context: &'a Context,
    /// The attributes that user space gave, each with its address in user memory.
    given: Vec<Given>,
}

struct Given {
    attribute: Attribute,
    address: u64,
}

/// Checks the ioctl at address `argument` and runs its method.
pub(super) fn dispatch(
    context: &Context,
    argument: u64,
    methods: &[&[Method]],
) -> Result<(), Errno> {
    let header: Header = read_pod(argument)?;
    let expected = size_of::<Header>() + usize::from(header.attributes) * size_of::<Attribute>();
    if header.length > MAX_LENGTH || usize::from(header.length) != expected {
        return Err(Errno::EINVAL);
    }
    if header.reserved1 != 0 || header.reserved2 != 0 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    if header.driver != DRIVER_MLX5 {
        return Err(Errno::EINVAL);
    }
    let method = methods
        .iter()
        .copied()
        .flatten()
        .find(|method| method.object == header.object && method.method == header.method)
        .ok_or(Errno::EPROTONOSUPPORT)?;
    let call = Call {
        context,
        given: accept(method, argument, usize::from(header.attributes))?,
    };
    match (method.run)(&call) {
        // This errno means "no such method or attribute", and rdma-core would take it for that.
        Err(Errno::EPROTONOSUPPORT) => Err(Errno::EOPNOTSUPP),
        outcome => outcome,
    }
}

/// Reads the attributes and checks them against those that the method declares.
fn accept(method: &Method, argument: u64, count: usize) -> Result<Vec<Given>, Errno> {
    let mut given: Vec<Given> = Vec::with_capacity(count);
    for index in 0..count {
        let offset = size_of::<Header>() + index * size_of::<Attribute>();
        let address = argument.checked_add(offset as u64).ok_or(Errno::EFAULT)?;
        let attribute: Attribute = read_pod(address)?;
        let Some(spec) = method
            .attributes
            .iter()
            .find(|spec| spec.id == attribute.id)
        else {
            if attribute.flags & MANDATORY != 0 {
                return Err(Errno::EPROTONOSUPPORT);
            }
            continue;
        };
        if given.iter().any(|other| other.attribute.id == attribute.id) || attribute.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        check_length(spec.kind, &attribute)?;
        given.push(Given { attribute, address });
    }
    let complete = method
        .attributes
        .iter()
        .filter(|spec| spec.mandatory)
        .all(|spec| given.iter().any(|given| given.attribute.id == spec.id));
    if complete {
        Ok(given)
    } else {
        Err(Errno::EINVAL)
    }
}

fn check_length(kind: Kind, attribute: &Attribute) -> Result<(), Errno> {
    match kind {
        Kind::Input { min, known } => {
            if attribute.len > known {
                let bytes = input(attribute)?;
                if bytes[usize::from(known)..].iter().any(|&byte| byte != 0) {
                    return Err(Errno::EOPNOTSUPP);
                }
            }
            if attribute.len < min {
                return Err(Errno::EINVAL);
            }
        }
        Kind::Output { min } => {
            if attribute.len < min {
                return Err(Errno::EINVAL);
            }
        }
        Kind::Number => {
            if attribute.len != 0 {
                return Err(Errno::EINVAL);
            }
        }
    }
    Ok(())
}

/// Returns the bytes of an input. Up to 8 bytes are in the attribute itself.
fn input(attribute: &Attribute) -> Result<Vec<u8>, Errno> {
    let len = usize::from(attribute.len);
    let inline = attribute.data.to_ne_bytes();
    if len <= inline.len() {
        return Ok(inline[..len].to_vec());
    }
    let mut bytes = vec![0; len];
    user::read(attribute.data, &mut bytes)?;
    Ok(bytes)
}

fn read_pod<T: Pod>(address: u64) -> Result<T, Errno> {
    let mut value = T::zeroed();
    user::read(address, bytemuck::bytes_of_mut(&mut value))?;
    Ok(value)
}

impl Call<'_> {
    /// Returns where the asynchronous events of a new object go: to the descriptor in attribute `id`, or to the context's own.
    pub(super) fn asynchronous_queue(&self, id: u16) -> Result<Option<Arc<EventQueue>>, Errno> {
        let subscriptions = self.context.subscriptions();
        if !self.has(id) {
            return Ok(subscriptions.asynchronous());
        }
        let fd = self.object(id)?;
        subscriptions
            .find(fd, |purpose| purpose == Purpose::Asynchronous)
            .map(Some)
    }

    fn find(&self, id: u16) -> Option<&Given> {
        self.given.iter().find(|given| given.attribute.id == id)
    }

    pub(super) fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// Returns how many bytes the caller gave or has room for in attribute `id`; 0 if the attribute is absent.
    pub(super) fn len(&self, id: u16) -> usize {
        self.find(id)
            .map_or(0, |given| usize::from(given.attribute.len))
    }

    /// Returns all bytes of an input; none if the attribute is absent.
    pub(super) fn bytes(&self, id: u16) -> Result<Vec<u8>, Errno> {
        self.find(id)
            .map_or(Ok(Vec::new()), |given| input(&given.attribute))
    }

    /// Returns an input as a struct. A shorter input is filled up with zeros, as older callers mean it.
    pub(super) fn read<T: Pod>(&self, id: u16) -> Result<T, Errno> {
        let bytes = self.bytes(id)?;
        let mut value = T::zeroed();
        let len = bytes.len().min(size_of::<T>());
        bytemuck::bytes_of_mut(&mut value)[..len].copy_from_slice(&bytes[..len]);
        Ok(value)
    }

    /// Returns a number; 0 if the attribute is absent. Shorter numbers occupy the low bytes.
    pub(super) fn u64(&self, id: u16) -> Result<u64, Errno> {
        self.read::<u64>(id)
    }

    /// Returns a number as [`Self::u64`] does. It must fit into 32 bits.
    pub(super) fn u32(&self, id: u16) -> Result<u32, Errno> {
        u32::try_from(self.u64(id)?).map_err(|_| Errno::EINVAL)
    }

    /// Returns the handle or descriptor in attribute `id`, which the method requires.
    pub(super) fn object(&self, id: u16) -> Result<u32, Errno> {
        let given = self.find(id).ok_or(Errno::EINVAL)?;
        u32::try_from(given.attribute.data).map_err(|_| Errno::EINVAL)
    }

    /// Writes an output: as much as the buffer holds, then zeros. Does nothing if the attribute is absent.
    pub(super) fn put(&self, id: u16, value: &[u8]) -> Result<(), Errno> {
        let Some(given) = self.find(id) else {
            return Ok(());
        };
        let mut bytes = value.to_vec();
        bytes.resize(usize::from(given.attribute.len), 0);
        user::write(given.attribute.data, &bytes)?;
        let flags = given.attribute.flags | VALID_OUTPUT;
        user::write(given.address + FLAGS_OFFSET, &flags.to_ne_bytes())
    }

    /// Writes a struct or number as [`Self::put`] does.
    pub(super) fn put_pod<T: Pod>(&self, id: u16, value: &T) -> Result<(), Errno> {
        self.put(id, bytemuck::bytes_of(value))
    }

    /// Writes a new handle or descriptor into attribute `id`.
    pub(super) fn put_object(&self, id: u16, number: u32) -> Result<(), Errno> {
        let given = self.find(id).ok_or(Errno::EINVAL)?;
        user::write(
            given.address + DATA_OFFSET,
            &u64::from(number).to_ne_bytes(),
        )
    }
}
