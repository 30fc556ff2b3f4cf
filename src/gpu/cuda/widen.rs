//! The text that the driver compiles and the name of its machine code, for the pack for a GPU and the loader of kernels.
//!
//! `crates/xtask` compiles this file, too, so that both make the same text of the same PTX. The file uses nothing of this crate.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

/// Returns the text with fences, loads and stores of gpu scope widened to system scope. Atomics stay, since only one GPU does them.
pub(crate) fn widened(text: &str) -> String {
    const NARROW: [(&str, &str); 9] = [
        ("fence.release.gpu", "fence.release.sys"),
        ("fence.acquire.gpu", "fence.acquire.sys"),
        ("fence.acq_rel.gpu", "fence.acq_rel.sys"),
        ("fence.sc.gpu", "fence.sc.sys"),
        ("ld.relaxed.gpu", "ld.relaxed.sys"),
        ("ld.acquire.gpu", "ld.acquire.sys"),
        ("st.relaxed.gpu", "st.relaxed.sys"),
        ("st.release.gpu", "st.release.sys"),
        ("membar.gl", "membar.sys"),
    ];
    let widen = |text: String, (narrow, wide): &(&str, &str)| text.replace(narrow, wide);
    NARROW.iter().fold(text.to_owned(), widen)
}

/// Returns the name of the file with the machine code of a PTX text. The name follows from the text alone, so the loader never takes code
/// of another text. A file made by another version of Rust may have another name; then the loader does not find it.
pub(crate) fn code_of(text: &str) -> String {
    let mut hash = DefaultHasher::new();
    hash.write(text.as_bytes());
    format!("{:016x}.cubin", hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_orders_memory_is_widened() {
        let text = "ld.relaxed.gpu.global.u64 a; atom.relaxed.gpu.global.add.u64 b; fence.release.gpu; fence.acq_rel.cta;";
        let wide = "ld.relaxed.sys.global.u64 a; atom.relaxed.gpu.global.add.u64 b; fence.release.sys; fence.acq_rel.cta;";
        assert_eq!(widened(text), wide);
        assert_eq!(widened(wide), wide);
    }

    #[test]
    fn machine_code_is_named_by_the_text_that_it_is_of() {
        let text = ".version 9.0\nfence.release.gpu;";
        let same = String::from(text);
        assert_eq!(code_of(text), code_of(&same));
        assert_ne!(code_of(text), code_of(&widened(text)));
        assert!(code_of("").ends_with(".cubin"));
    }
}
