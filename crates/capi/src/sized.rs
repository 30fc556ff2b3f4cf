//! Structs that say how long they are, so that a program and a library of different age understand each other.
//!
//! A struct begins with its `size`, and grows at its end only, by fields whose zero means what was before them. A shorter one is of
//! an older header: what it lacks is zero. A longer one is of a newer header: what this library does not know must be zero.

// UNSAFETY: structs of C are copied by their bytes, as long as they say to be.
#![expect(unsafe_code, reason = "the C ABI")]

use std::mem::MaybeUninit;
use std::ptr;

use crate::status::{Failure, given, room, wv_status};

/// Longest struct that is looked at: a size beyond it was never set.
const MOST: usize = 4096;

/// A struct of the header. `sized!` implements it.
///
/// # Safety
/// `repr(C)`, the first field is `size: usize`, all others are integers, pointers, or structs and arrays of these; no padding.
pub(crate) unsafe trait Struct: Copy {
    /// As C writes it.
    const NAME: &'static str;
    /// Where its fields begin, and its end.
    const BORDERS: &'static [usize];
}

/// Implements [`Struct`] for a struct with these fields after `size`: all of them, without padding, or it does not compile.
macro_rules! sized {
    ($name:ident { $($field:ident),* $(,)? }) => {
        const _: () = {
            const fn bytes<F>(_: fn($name) -> F) -> usize {
                size_of::<F>()
            }
            let fields = [bytes(|all| all.size), $(bytes(|all| all.$field)),*];
            let (mut sum, mut at) = (0, 0);
            while at < fields.len() {
                sum += fields[at];
                at += 1;
            }
            // A field that is not named here, or padding, of which no program would know what it holds.
            assert!(sum == size_of::<$name>());
            assert!(std::mem::offset_of!($name, size) == 0);
        };
        // SAFETY: checked above, but for the types of the fields, which are those of C.
        unsafe impl $crate::sized::Struct for $name {
            const NAME: &'static str = stringify!($name);
            const BORDERS: &'static [usize] =
                &[$(std::mem::offset_of!($name, $field),)* size_of::<$name>()];
        }
    };
}
pub(crate) use sized;

/// The `size` that a struct of C has, if it can be.
///
/// # Safety
/// Null, or the address of a struct whose `size` may be read.
unsafe fn size_of_given<T: Struct>(name: &str, pointer: *const T) -> Result<usize, Failure> {
    if !pointer.is_aligned() {
        return Err(Failure::argument(name, format!("{pointer:p}"), "aligned"));
    }
    // SAFETY: the caller's promise; every such struct begins with it.
    let size = *unsafe { given(name, pointer.cast::<usize>()) }?;
    let own = size_of::<T>();
    if T::BORDERS.contains(&size) || (own..=MOST).contains(&size) {
        return Ok(size);
    }
    let borders: Vec<String> = T::BORDERS.iter().map(usize::to_string).collect();
    Err(Failure::new(
        wv_status::WV_BAD_STRUCT,
        format!(
            "size of {name} is {size}; it must be that of a {} as WV_INIT sets it: one of {}, or of a newer header up to {MOST}",
            T::NAME,
            borders.join(", ")
        ),
    ))
}

/// A struct from C. Fields after its `size` are zero.
///
/// # Safety
/// Null, or the address of as many bytes as its `size` says, if that is at most [`MOST`]. No thread changes them meanwhile.
pub(crate) unsafe fn read<T: Struct>(name: &str, pointer: *const T) -> Result<T, Failure> {
    // SAFETY: the caller's promise.
    let size = unsafe { size_of_given(name, pointer) }?;
    let from = pointer.cast::<u8>();
    for at in size_of::<T>()..size {
        // SAFETY: the caller's promise: below `size`.
        let byte = unsafe { from.add(at).read() };
        if byte != 0 {
            return Err(Failure::new(
                wv_status::WV_BAD_STRUCT,
                format!(
                    "byte {at} of {name} is {byte:#x}; it must be 0, since this library knows the first {} of its {size} bytes",
                    size_of::<T>()
                ),
            ));
        }
    }
    let mut value = MaybeUninit::<T>::zeroed();
    let known = size.min(size_of::<T>());
    // SAFETY: the caller's promise for the source; the target is as long, and new.
    unsafe { ptr::copy_nonoverlapping(from, value.as_mut_ptr().cast::<u8>(), known) };
    // SAFETY: integers and pointers may have any bytes, and all were zeroed or copied.
    Ok(unsafe { value.assume_init() })
}

/// A struct of C that is to be filled.
#[derive(Debug)]
pub(crate) struct Place<T> {
    pointer: *mut T,
    size: usize,
}

/// Checks the place for an answer, before the answer is made.
///
/// # Safety
/// As [`read`]; it may be written as far as its `size` says, until the result is gone.
pub(crate) unsafe fn place<T: Struct>(name: &str, pointer: *mut T) -> Result<Place<T>, Failure> {
    room(name, pointer)?;
    // SAFETY: the caller's promise.
    let size = unsafe { size_of_given(name, pointer.cast_const()) }?;
    Ok(Place { pointer, size })
}

impl<T: Struct> Place<T> {
    /// Fills it as far as it goes. Its `size` stays; what this library does not know becomes zero.
    pub(crate) fn fill(self, value: T) {
        let own = size_of::<T>();
        let to = self.pointer.cast::<u8>();
        let skip = size_of::<usize>();
        let known = self.size.min(own) - skip;
        // SAFETY: as `place` was promised: below `size`, in a struct of C that nothing else reads or writes now.
        unsafe {
            ptr::copy_nonoverlapping(
                (&raw const value).cast::<u8>().add(skip),
                to.add(skip),
                known,
            );
            ptr::write_bytes(to.add(own.min(self.size)), 0, self.size.saturating_sub(own));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    struct Old {
        size: usize,
        a: u32,
        b: u32,
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    struct New {
        size: usize,
        a: u32,
        b: u32,
        c: u64,
    }

    sized!(Old { a, b });
    sized!(New { a, b, c });

    fn old(new: &New) -> Result<Old, Failure> {
        // SAFETY: a struct that is longer than the one it is taken for.
        unsafe { read("old", ptr::from_ref(new).cast()) }
    }

    fn new(given: &New) -> Result<New, Failure> {
        // SAFETY: a struct.
        unsafe { read("new", ptr::from_ref(given)) }
    }

    #[test]
    fn shorter_exact_and_longer_structs_are_read() {
        let given = |size| New {
            size,
            a: 1,
            b: 2,
            c: 3,
        };
        assert_eq!(new(&given(24)).unwrap(), given(24));
        // Of an older header: what lies after its size is not looked at.
        assert_eq!(new(&given(16)).unwrap(), New { c: 0, ..given(16) });
        assert_eq!(
            new(&given(12)).unwrap(),
            New {
                b: 0,
                c: 0,
                ..given(12)
            }
        );
        assert_eq!(
            new(&given(8)).unwrap(),
            New {
                size: 8,
                ..New::default()
            }
        );
        // Of a newer header.
        let zeros = New { c: 0, ..given(24) };
        assert_eq!(
            old(&zeros).unwrap(),
            Old {
                size: 24,
                a: 1,
                b: 2
            }
        );
    }

    #[test]
    fn a_size_that_cannot_be_is_refused_with_its_value_and_its_limits() {
        let words = |failure: Failure| {
            assert_eq!(failure.status, wv_status::WV_BAD_STRUCT);
            failure.words
        };
        for size in [0, 7, 10, 20, 4097, usize::MAX] {
            let given = New {
                size,
                ..New::default()
            };
            let refused = words(new(&given).unwrap_err());
            assert_eq!(
                refused,
                format!(
                    "size of new is {size}; it must be that of a New as WV_INIT sets it: one of 8, 12, 16, 24, or of a newer \
                     header up to 4096"
                )
            );
        }
        let more = New {
            size: 24,
            c: 1 << 16,
            ..New::default()
        };
        assert_eq!(
            words(old(&more).unwrap_err()),
            "byte 18 of old is 0x1; it must be 0, since this library knows the first 16 of its 24 bytes"
        );
    }

    #[test]
    fn an_answer_is_as_long_as_there_is_room_for() {
        let answer = New {
            size: 0,
            a: 1,
            b: 2,
            c: 3,
        };
        for (size, want) in [
            (
                8,
                New {
                    size: 8,
                    a: 9,
                    b: 9,
                    c: 9,
                },
            ),
            (
                16,
                New {
                    size: 16,
                    c: 9,
                    ..answer
                },
            ),
            (24, New { size: 24, ..answer }),
        ] {
            let mut found = New {
                size,
                a: 9,
                b: 9,
                c: 9,
            };
            // SAFETY: a variable.
            unsafe { place("new", &raw mut found) }
                .unwrap()
                .fill(answer);
            assert_eq!(found, want);
        }
        let mut found = New {
            size: 24,
            a: 9,
            b: 9,
            c: 9,
        };
        let short = Old {
            size: 0,
            a: 1,
            b: 2,
        };
        // SAFETY: a variable that is longer than the answer.
        unsafe { place("old", (&raw mut found).cast::<Old>()) }
            .unwrap()
            .fill(short);
        assert_eq!(
            found,
            New {
                size: 24,
                a: 1,
                b: 2,
                c: 0
            }
        );
    }
}
