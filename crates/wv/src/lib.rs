//! The library of the program `wv`. `src/bin/wv.rs` parses the command line and [`cmd`] runs the commands. [`mod@bench`] measures, with
//! kernels whose parameters are in [`abi`], and [`p2p`] copies files.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

pub mod abi;
pub mod bench;
pub mod cmd;
pub mod p2p;

warpverbs::kernels! {
    /// The kernels that measure.
    pub static KERNELS
}

warpverbs::kernels! {
    /// The kernel of `wv doctor`. It is a set of its own, so that the driver of a GPU compiles no other kernel in the time of a check.
    pub static DOCTOR = "doctor"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_ptx_of_each_kernel_for_each_gpu_or_says_what_writes_it() {
        assert_eq!(DOCTOR.no_ptx(), None, "wv doctor needs NVRTC");
        for set in [&KERNELS, &DOCTOR, &gpuhca::KERNELS] {
            let kernels = set
                .sources()
                .iter()
                .filter(|(path, _)| path.ends_with(".cu"));
            if let Some(why) = set.no_ptx() {
                assert!(set.ptx().is_empty(), "{why}");
                assert!(why.contains("`./x kernels` writes it"), "{why}");
                continue;
            }
            let mut wanted = 0;
            for (path, _) in kernels {
                let name = path.rsplit('/').next().unwrap().replace(".cu", ".ptx");
                for arch in [80, 90] {
                    let is_it =
                        |(of, path, _): &&(u32, &str, &str)| *of == arch && path.ends_with(&name);
                    assert_eq!(
                        set.ptx().iter().filter(is_it).count(),
                        1,
                        "sm_{arch} {name}"
                    );
                    wanted += 1;
                }
            }
            assert!(wanted > 0 && set.ptx().len() == wanted, "{wanted}");
        }
    }
}
