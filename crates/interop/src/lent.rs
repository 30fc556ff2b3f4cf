//! What a program keeps while it is in use here.

// UNSAFETY: a declaration only; the code that takes the lifetime away promises it.
#![expect(unsafe_code, reason = "a value without its lifetime")]

use std::marker::PhantomData;
use std::ops::Deref;

/// Something of Warpverbs that uses what the program keeps for `'a`.
///
/// A clone of the object inside, and whatever is made of it, uses the object for as long as it lives. The function that has made
/// this value says what the caller promises for that.
#[derive(Debug)]
pub struct Lent<'a, T> {
    inner: T,
    _kept: PhantomData<&'a ()>,
}

impl<T> Lent<'_, T> {
    #[cfg_attr(
        not(any(feature = "rdma-sys", feature = "cust", feature = "cudarc")),
        expect(dead_code, reason = "each feature makes some")
    )]
    pub(crate) fn new(inner: T) -> Self {
        Self {
            inner,
            _kept: PhantomData,
        }
    }

    /// What is in it, for something that takes it over: [`Team::window_over`](warpverbs::team::Team::window_over) a memory.
    ///
    /// # Safety
    ///
    /// What the program has handed over outlives the result, and what takes it over: of memory, the team.
    pub unsafe fn into_inner(self) -> T {
        self.inner
    }
}

impl<T> Deref for Lent<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}
