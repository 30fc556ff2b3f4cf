//! Contexts of operations, where a provider may use them (`FI_CONTEXT2`): 64 bytes that are the library's until the completion was read.
//!
//! They are marked while they are in use. A program that gives one again, or writes into one, is reported.

// UNSAFETY: bytes of the program are marked and looked at.
#![expect(unsafe_code, reason = "memory of the program by address")]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::rules::Rule;

const WORDS: usize = 8;
const BYTES: usize = WORDS * 8;

/// What they hold while they are in use, each word beside its number.
const MARK: u64 = 0x50f7_0f1c_0417_e000;

/// By address. In all domains of the process: memory is one.
static IN_USE: Mutex<BTreeMap<usize, ()>> = Mutex::new(BTreeMap::new());

fn in_use() -> MutexGuard<'static, BTreeMap<usize, ()>> {
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses a context that cannot be taken.
pub(crate) fn check(context: usize) -> Result<(), c_int> {
    if context == 0 {
        return Err(Rule::ContextMissing.broken(""));
    }
    if !context.is_multiple_of(align_of::<usize>()) {
        return Err(Rule::ContextUnaligned.broken(format_args!("({context:#x})")));
    }
    let in_use = in_use();
    let near = in_use.range(context.saturating_sub(BYTES - 1)..context.saturating_add(BYTES));
    match near.map(|(other, ())| *other).next() {
        Some(other) => Err(Rule::ContextInUse.broken(format_args!(
            "({context:#x}, where {other:#x} is under way)"
        ))),
        None => Ok(()),
    }
}

/// Takes a context that was checked.
pub(crate) fn take(context: usize) {
    in_use().insert(context, ());
    for (at, word) in words(context) {
        // SAFETY: 64 bytes of the program, aligned, and the library's by the rule of FI_CONTEXT2.
        unsafe { ptr::write_volatile(at, word) };
    }
}

/// Gives a context back to the program.
pub(crate) fn release(context: usize) {
    if in_use().remove(&context).is_none() {
        return;
    }
    // SAFETY: as above: the library's until now.
    let is_whole = words(context).all(|(at, word)| unsafe { ptr::read_volatile(at) } == word);
    if !is_whole {
        Rule::ContextOverwritten.broken(format_args!("({context:#x})"));
    }
}

fn words(context: usize) -> impl Iterator<Item = (*mut u64, u64)> {
    (0..WORDS).map(move |number| {
        let at = ptr::with_exposed_provenance_mut(context + number * 8);
        (at, MARK + number as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_taken_once_and_whole_until_it_is_released() {
        let mut memory = [0u64; 16];
        let first = memory.as_mut_ptr().expose_provenance();
        assert!(check(0).is_err() && check(first + 4).is_err());
        check(first).unwrap();
        take(first);
        // Parts of it are in use as well.
        assert!(check(first).is_err() && check(first + 56).is_err());
        check(first + 64).unwrap();
        release(first);
        check(first).unwrap();
    }
}
