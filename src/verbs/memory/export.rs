//! The export ladder: ways in which the HCA reaches memory.
//!
//! The owner of memory offers the ways that it has: dmabufs, the best first, and the address. Each rung is tried in turn, and refused rungs
//! are kept with the reason. So a report can say on which rung memory stands, and why not on a better one.
//!
//! | rung | is |
//! |---|---|
//! | [`Rung::DmabufPcie`] | a dmabuf whose pages the HCA reaches across PCIe (BAR), also where a coherent link would be taken |
//! | [`Rung::Dmabuf`] | a dmabuf |
//! | [`Rung::Address`] | an address of this process: host memory, or device memory that the kernel can pin (peermem) |
//! | [`Rung::Host`] | host memory that kernels reach, in place of device memory that the HCA cannot |

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::verbs::error::VerbsError;
use crate::verbs::rung::Rung;

/// Memory as its owner exports it. The first byte lies at `offset` in this dmabuf.
#[derive(Clone, Copy, Debug)]
pub struct Dmabuf<'a> {
    /// The descriptor, which is used only during the call.
    pub fd: BorrowedFd<'a>,
    /// The offset in the dmabuf at which the memory begins.
    pub offset: u64,
    /// True if the dmabuf was made for access across PCIe.
    pub pcie: bool,
}

impl Dmabuf<'_> {
    /// Returns the rung of the dmabuf.
    #[must_use]
    pub fn rung(&self) -> Rung {
        if self.pcie {
            Rung::DmabufPcie
        } else {
            Rung::Dmabuf
        }
    }
}

/// The rung on which memory stands, and the rungs that were refused before.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Export {
    /// The rung on which the memory stands.
    pub rung: Rung,
    /// The rungs that were tried before, each with the reason of its refusal.
    pub refused: Vec<(Rung, VerbsError)>,
}

impl Export {
    pub(in crate::verbs) fn first_try(rung: Rung) -> Self {
        Self {
            rung,
            refused: Vec::new(),
        }
    }
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rung)?;
        for (n, (rung, reason)) in self.refused.iter().enumerate() {
            let lead = if n == 0 { " (not " } else { "; not " };
            write!(f, "{lead}{rung}: {reason}")?;
        }
        f.write_str(if self.refused.is_empty() { "" } else { ")" })
    }
}

/// A dmabuf whose descriptor this library keeps.
#[derive(Debug)]
pub(in crate::verbs) struct KeptDmabuf {
    fd: OwnedFd,
    offset: u64,
    pcie: bool,
}

impl KeptDmabuf {
    pub(in crate::verbs) fn keep(dmabuf: &Dmabuf<'_>) -> Result<Self, VerbsError> {
        let fd = dmabuf.fd.try_clone_to_owned().map_err(|error| {
            let limit = format!("a descriptor that can be duplicated: {error}");
            VerbsError::argument("dmabuf", format!("{:?}", dmabuf.fd), limit)
        })?;
        Ok(Self {
            fd,
            offset: dmabuf.offset,
            pcie: dmabuf.pcie,
        })
    }

    /// Returns the memory from byte `skip` on.
    pub(in crate::verbs) fn from(&self, skip: u64) -> Dmabuf<'_> {
        Dmabuf {
            fd: self.fd.as_fd(),
            offset: self.offset + skip,
            pcie: self.pcie,
        }
    }
}

/// Tries the dmabufs in order and then the address, whose rung is `last`. Returns the first success.
///
/// # Errors
///
/// Without dmabufs the error of the address; else [`VerbsError::Export`] with the errors of all rungs.
pub(in crate::verbs) fn climb<T>(
    dmabufs: &[Dmabuf<'_>],
    last: Rung,
    mut attempt: impl FnMut(Option<&Dmabuf<'_>>) -> Result<T, VerbsError>,
) -> Result<(T, Export), VerbsError> {
    let mut refused = Vec::new();
    for dmabuf in dmabufs.iter().map(Some).chain([None]) {
        let rung = dmabuf.map_or(last, Dmabuf::rung);
        match attempt(dmabuf) {
            Ok(made) => return Ok((made, Export { rung, refused })),
            Err(reason) => refused.push((rung, reason)),
        }
    }
    match refused.pop() {
        Some((_, only)) if refused.is_empty() => Err(only),
        Some(last) => {
            refused.push(last);
            Err(VerbsError::Export { refused })
        }
        None => Err(VerbsError::Export { refused }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(what: &'static str) -> VerbsError {
        VerbsError::argument(what, 1, "nothing")
    }

    #[test]
    fn the_first_rung_that_holds_is_taken_and_the_refused_ones_are_reported() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let dmabuf = |pcie| Dmabuf {
            fd: file.as_fd(),
            offset: 0,
            pcie,
        };
        let offered = [dmabuf(true), dmabuf(false)];
        let mut tried = Vec::new();
        let (got, export) = climb(&offered, Rung::Address, |dmabuf| {
            tried.push(dmabuf.map(Dmabuf::rung));
            match dmabuf {
                Some(dmabuf) if dmabuf.pcie => Err(refusal("bar")),
                Some(_) => Ok(7),
                None => Ok(8),
            }
        })
        .unwrap();
        assert_eq!((got, export.rung), (7, Rung::Dmabuf));
        assert_eq!(tried, [Some(Rung::DmabufPcie), Some(Rung::Dmabuf)]);
        assert_eq!(
            export.to_string(),
            "dmabuf (not dmabuf (PCIe): bar is 1; it must be nothing)"
        );
    }

    #[test]
    fn when_no_rung_holds_the_error_has_every_reason() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let offered = [Dmabuf {
            fd: file.as_fd(),
            offset: 0,
            pcie: false,
        }];
        let fail =
            |dmabuf: Option<&Dmabuf<'_>>| Err::<(), _>(refusal(dmabuf.map_or("address", |_| "fd")));
        let error = climb(&offered, Rung::Address, fail).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("dmabuf: fd is 1"), "{text}");
        assert!(text.contains("address: address is 1"), "{text}");
        let alone = climb(&[], Rung::Host, fail).unwrap_err();
        assert!(
            matches!(alone, VerbsError::BadArgument { .. }),
            "{alone}: the only reason is the reason"
        );
    }
}
