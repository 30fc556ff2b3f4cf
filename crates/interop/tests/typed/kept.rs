//! What a program keeps of a GPU whose stream and memory it has handed on.

use test_support::fake_cuda::Fake;

use crate::orders::{Kept, drop_in};

/// Drops what was made of the program's stream and of its memory at `addr`: neither is destroyed or freed.
pub(crate) fn is_kept((fake, addr): (&Fake, u64), parts: [Box<dyn Kept + '_>; 4], order: &[usize]) {
    let destroyed = fake.calls("cuStreamDestroy_v2").len();
    drop_in(parts, order);
    let freed = fake.calls("cuMemFree_v2");
    assert!(
        !freed.contains(&format!("{addr:#x}")),
        "{order:?}: {freed:?}"
    );
    // The runtime's own two, and not the program's.
    let ended = fake.calls("cuStreamDestroy_v2").len() - destroyed;
    assert_eq!(ended, 2, "{order:?}");
}
