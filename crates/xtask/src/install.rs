//! `./x install` and `./x dist`: install or pack what users get.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{At, Failure, Result};
use crate::process::{command, run, text_of};
use crate::tree::{build_release, fresh_folder, kernel_headers, prepare, release};
use crate::written_ptx;

/// Copies what users need below a prefix. None: /usr/local for root, ~/.local for other users.
pub(crate) fn install(prefix: Option<&str>) -> Result {
    let prefix = match prefix {
        Some(prefix) => PathBuf::from(prefix),
        None => default_prefix()?,
    };
    build_for_others()?;
    install_into(&prefix)?;
    println!(
        "installed wv, libsofthca.so, libwarpverbs_c.so and the headers below {}",
        prefix.display()
    );
    Ok(())
}

/// Builds what is copied, with the PTX that git does not carry.
fn build_for_others() -> Result {
    written_ptx::write()?;
    prepare("demo")?;
    build_release()
}

fn default_prefix() -> Result<PathBuf> {
    if is_root()? {
        return Ok("/usr/local".into());
    }
    let home = std::env::var_os("HOME").ok_or_else(|| Failure::new(2, "HOME is not set"))?;
    Ok(Path::new(&home).join(".local"))
}

pub(crate) fn is_root() -> Result<bool> {
    Ok(text_of(&mut command("id", ["-u"]))?.trim() == "0")
}

/// Makes one tar file of what `install` copies.
pub(crate) fn dist() -> Result {
    build_for_others()?;
    // The version is that of the workspace, which this package has too.
    let (version, machine) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let name = format!("warpverbs-{version}-{machine}-linux");
    let folder = Path::new("target/dist").join(&name);
    fresh_folder(&folder)?;
    install_into(&folder)?;
    let tar = format!("target/dist/{name}.tar.gz");
    run(Command::new("tar")
        .args(["-C", "target/dist", "-czf", &tar])
        .args(["--owner=0", "--group=0", &name]))?;
    let programs = ["bin/wv", "lib/warpverbs/libsofthca.so"].map(|file| folder.join(file));
    let symbols = text_of(Command::new("objdump").arg("-T").args(programs))?;
    let glibc = newest_glibc(&symbols)
        .ok_or_else(|| Failure::new(1, "the programs name no version of glibc"))?;
    println!("{tar} needs glibc {glibc} or newer");
    Ok(())
}

/// Installs bin/wv, lib/warpverbs/libsofthca.so (where wv looks for it), headers for user kernels, and the C ABI.
fn install_into(prefix: &Path) -> Result {
    let built = release();
    install_file("755", &built.join("wv"), &prefix.join("bin/wv"))?;
    written_ptx::check_carried(&prefix.join("bin/wv"))?;
    for (file, place) in [
        ("libsofthca.so", "lib/warpverbs/libsofthca.so"),
        ("libwarpverbs_c.so", "lib/libwarpverbs_c.so"),
    ] {
        install_file("755", &built.join(file), &prefix.join(place))?;
    }
    let c_header = Path::new("crates/capi/include/warpverbs.h");
    install_file("644", c_header, &prefix.join("include/warpverbs.h"))?;
    for header in kernel_headers()? {
        if let Some(place) = place_of_header(&header) {
            install_file("644", &header, &prefix.join("include").join(place))?;
        }
    }
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let place = prefix.join("share/doc/warpverbs").join(licence);
        install_file("644", Path::new(licence), &place)?;
    }
    Ok(())
}

/// Returns the place of a header below `include`, or None for headers that users do not include.
fn place_of_header(header: &Path) -> Option<PathBuf> {
    if let Ok(name) = header.strip_prefix("kernels/include") {
        return Some(name.to_owned());
    }
    let name = header.strip_prefix("crates/simt/include").ok()?;
    Some(Path::new("warpverbs").join(name))
}

fn install_file(mode: &str, file: &Path, place: &Path) -> Result {
    run(command("install", ["-D", "-m", mode]).args([file, place]))
}

/// Installs what the Python wheel carries: everything except the C ABI, without what only a debugger reads.
pub(crate) fn install_for_python(prefix: &Path) -> Result {
    install_into(prefix)?;
    for of_c in ["lib/libwarpverbs_c.so", "include/warpverbs.h"] {
        let path = prefix.join(of_c);
        fs::remove_file(&path).at(&path)?;
    }
    let objects = ["bin/wv", "lib/warpverbs/libsofthca.so"].map(|file| prefix.join(file));
    run(Command::new("strip").arg("--strip-unneeded").args(objects))
}

/// Returns the newest version that a table of symbols names in the form `GLIBC_2.34`.
pub(crate) fn newest_glibc(symbols: &str) -> Option<String> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let version: Vec<u32> = rest
            .split(|c: char| !(c.is_ascii_digit() || c == '.'))
            .next()?
            .split('.')
            .map(|number| number.parse().ok())
            .collect::<Option<_>>()?;
        Some(version)
    });
    let newest: Vec<String> = versions.max()?.iter().map(u32::to_string).collect();
    Some(newest.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_is_found_by_number() {
        let symbols =
            "DF *UND* (GLIBC_2.4) memcpy\n(GLIBC_2.34) open\n(GLIBC_PRIVATE) x\n(GLIBC_2.2.5) y";
        assert_eq!(newest_glibc(symbols).as_deref(), Some("2.34"));
        assert_eq!(newest_glibc("nothing"), None);
    }

    #[test]
    fn users_get_the_headers_that_kernels_include() {
        let place = |path: &str| place_of_header(Path::new(path));
        assert_eq!(
            place("kernels/include/warpverbs/put.cuh"),
            Some("warpverbs/put.cuh".into())
        );
        assert_eq!(
            place("crates/simt/include/simt.h"),
            Some("warpverbs/simt.h".into())
        );
        assert_eq!(place("crates/test-support/kernels/abi.h"), None);
    }
}
