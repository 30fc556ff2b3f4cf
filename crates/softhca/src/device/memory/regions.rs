//! Copies between lists of regions. A list holds the pieces that a key or a scatter list gives.

use super::Region;
use file_memory::Gone;

/// Copies all of `sources`, in order, to `out`.
///
/// # Errors
///
/// A page is gone.
///
/// # Panics
///
/// If `out` is shorter than `sources`: a bug of the caller.
pub(crate) fn read(sources: &[Region], out: &mut [u8]) -> Result<(), Gone> {
    let mut at = 0;
    for source in sources {
        let end = at + source.length();
        source.fetch(&mut out[at..end])?;
        at = end;
    }
    Ok(())
}

/// Fills `targets`, in order, with `data`.
///
/// # Errors
///
/// A page is gone. The targets before it have been filled.
///
/// # Panics
///
/// If `data` is shorter than `targets`: a bug of the caller.
pub(crate) fn write(targets: &[Region], data: &[u8]) -> Result<(), Gone> {
    let mut at = 0;
    for target in targets {
        let end = at + target.length();
        target.place(&data[at..end])?;
        at = end;
    }
    Ok(())
}

/// Checks, for those of `targets` that may shrink, that their pages are still there.
///
/// # Errors
///
/// A page is gone.
pub(crate) fn check(targets: &[Region]) -> Result<(), Gone> {
    for target in targets.iter().filter(|target| target.may_shrink()) {
        let mut bytes = vec![0; target.length()];
        target.fetch(&mut bytes).map_err(|_| Gone::Target)?;
    }
    Ok(())
}

/// Copies `sources` to `targets`, in ascending order. The copy ends where the shorter list ends.
///
/// # Errors
///
/// A page is gone.
pub(crate) fn copy(sources: &[Region], targets: &[Region]) -> Result<(), Gone> {
    let (mut sources, mut targets) = (sources.iter().copied(), targets.iter().copied());
    let (mut source, mut target) = (sources.next(), targets.next());
    while let (Some(from), Some(to)) = (source, target) {
        let bytes = from.bytes().min(to.bytes());
        if let (Some(from), Some(to)) = (from.part(0, bytes), to.part(0, bytes)) {
            from.copy_to(&to)?;
        }
        source = rest(from, bytes).or_else(|| sources.next());
        target = rest(to, bytes).or_else(|| targets.next());
    }
    Ok(())
}

/// Returns the rest of a region after its first `bytes` bytes.
fn rest(region: Region, bytes: u64) -> Option<Region> {
    let left = region.bytes().checked_sub(bytes)?;
    region.part(bytes, left).filter(|rest| rest.bytes() != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::tests_memory;

    #[test]
    fn bytes_arrive_however_both_sides_are_cut() {
        let seed = 0x1157;
        let mut rng = fastrand::Rng::with_seed(seed);
        for round in 0..200 {
            let data: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(512).collect();
            let mut from = vec![0u64; 64];
            let mut to = vec![0u64; 64];
            let source = tests_memory(&mut from);
            let target = tests_memory(&mut to);
            source.write(0, &data);
            let mut cut = |whole: Region| {
                let mut at = 0;
                let mut pieces = Vec::new();
                while at < 512 {
                    let bytes = rng.u64(0..=(512 - at).min(100));
                    pieces.push(whole.part(at, bytes).unwrap());
                    at += bytes;
                }
                pieces
            };
            let (sources, targets) = (cut(source), cut(target));
            copy(&sources, &targets).unwrap();
            let mut back = vec![0; 512];
            read(&targets, &mut back).unwrap();
            assert_eq!(back, data, "seed {seed:#x} round {round}");
            let data: Vec<u8> = data.iter().rev().copied().collect();
            write(&sources, &data).unwrap();
            source.read(0, &mut back);
            assert_eq!(back, data, "seed {seed:#x} round {round}");
        }
    }

    #[test]
    fn the_shorter_list_ends_a_copy() {
        let mut from = [1u64, 2];
        let mut to = [0u64; 4];
        let source = tests_memory(&mut from);
        let target = tests_memory(&mut to);
        copy(&[source], &[target]).unwrap();
        let mut back = [0; 32];
        target.read(0, &mut back);
        assert_eq!(back[16..], [0; 16]);
        assert_eq!(back[8], if cfg!(target_endian = "little") { 2 } else { 0 });
    }
}
