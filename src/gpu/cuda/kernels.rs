//! The images that a device loads: the embedded PTX, or, if a set has no PTX or the driver is too old for it, what NVRTC makes of the
//! embedded sources. Kernels of other crates and of a user are loaded in the same ways.
//!
//! Nothing here calls the driver: a closure loads the images, so that tests run every path without a driver.

use std::fmt;

use super::cubins;
use super::nvrtc::{Compiled, Nvrtc};
use super::options::{Compile, CudaOptions, MemoryLocation};
use super::ptx::{self, Needs};
use super::sources::{CudaSource, embedded, kernel_files};
use super::widen::widened;
use crate::gpu::error::OldDriver;
use crate::gpu::kernel_set::LIBRARY;
use crate::gpu::{GpuError, KernelSet};

/// `CUDA_ERROR_INVALID_PTX`.
const INVALID_PTX: u32 = 218;
/// Codes of `CUresult` after which another image may load. They mean that the set has no code for this device, or that its PTX is too new.
/// Or the driver has no compiler of PTX or must not use it. Some codes call the PTX invalid; of these [`refused`] keeps only the refusal of
/// PTX that is too new.
const REFUSALS: [u32; 5] = [209, 221, INVALID_PTX, 222, 223];
/// The words by which a driver refuses PTX that is too new.
const UNKNOWN_VERSION: &str = "Unsupported .version";

/// Code that the driver loads as one module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// The name of the image, for messages.
    pub(super) name: String,
    /// The PTX, which also names the kernels.
    pub(super) ptx: String,
    /// Machine code, to load in place of the PTX.
    pub(super) cubin: Option<Vec<u8>>,
}

/// The properties of a device that decide which images it can load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// The architecture, 90 for sm_90.
    pub(super) arch: u32,
    /// CUDA version that the driver runs: 12040 for 12.4.
    pub(super) driver: u32,
}

/// How a device gets the kernels of a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelLoading {
    pub(super) target: Target,
    pub(super) compile: Compile,
    pub(super) location: MemoryLocation,
    /// Returns the machine code of a PTX text for an architecture, or none.
    pub(super) cubin: fn(u32, &str) -> Option<Vec<u8>>,
}

impl KernelLoading {
    pub(super) fn new(target: Target, options: &CudaOptions<'_>) -> Self {
        Self {
            target,
            compile: options.compile,
            location: options.location,
            cubin: cubins::of,
        }
    }
}

/// A compiler of sources.
pub(super) trait Compiler: fmt::Display {
    /// See [`Nvrtc::compile`].
    fn compile(
        &self,
        main: CudaSource<'_>,
        headers: &[CudaSource<'_>],
        arch: u32,
    ) -> Result<Compiled, GpuError>;
}

impl Compiler for Nvrtc {
    fn compile(
        &self,
        main: CudaSource<'_>,
        headers: &[CudaSource<'_>],
        arch: u32,
    ) -> Result<Compiled, GpuError> {
        self.compile(main, headers, arch)
    }
}

/// Images, each with the module that its load returned.
type Loaded<M> = Vec<(Image, M)>;

/// Loads all kernels of this crate, and the kernels of the options, with `load`.
pub(super) fn load_all<C: Compiler, M>(
    target: Target,
    options: &CudaOptions<'_>,
    find: impl Fn() -> Result<C, String>,
    mut load: impl FnMut(&Image) -> Result<M, GpuError>,
) -> Result<(Loaded<M>, Loaded<M>), GpuError> {
    let way = KernelLoading::new(target, options);
    let library = if options.bare {
        Vec::new()
    } else {
        load_set(way, &LIBRARY, &find, &mut load)?
    };
    let mut extra = Vec::new();
    let mut add = |image: Image| -> Result<(), GpuError> {
        extra.push(load_image(way, image, &mut load)?);
        Ok(())
    };
    for source in options.ptx {
        let image = Image {
            name: source.name.to_owned(),
            ptx: source.text.to_owned(),
            cubin: None,
        };
        add(image).map_err(|error| {
            if !is_refusal(&error) {
                return error;
            }
            let nvrtc = format!("no source of {}", source.name);
            too_old(target, source.text, &error, nvrtc)
        })?;
    }
    if !options.sources.is_empty() {
        let nvrtc = find().map_err(|error| no_nvrtc(options.sources[0].name, &error))?;
        for source in options.sources {
            add(compile(&nvrtc, *source, options.headers, target)?)?;
        }
    }
    Ok((library, extra))
}

/// Loads the kernels of `set` with `load`: from its PTX. Without PTX, or if the driver cannot read it, NVRTC compiles its sources.
pub(super) fn load_set<C: Compiler, M>(
    way: KernelLoading,
    set: &KernelSet,
    find: &impl Fn() -> Result<C, String>,
    load: &mut impl FnMut(&Image) -> Result<M, GpuError>,
) -> Result<Loaded<M>, GpuError> {
    let has_sources = kernel_files(set).next().is_some();
    let no_use = || GpuError::NotForDevice {
        package: set.package().to_owned(),
        device: format!("sm_{}", way.target.arch),
    };
    match way.compile {
        _ if set.ptx().is_empty() && !has_sources => Err(no_use()),
        Compile::Nvrtc if !has_sources => Err(no_use()),
        Compile::Ptx if set.ptx().is_empty() => {
            Err(no_ptx(set, "Compile::Ptx asks for PTX alone".to_owned()))
        }
        Compile::Auto if set.ptx().is_empty() => {
            let nvrtc = find().map_err(|error| no_ptx(set, error))?;
            tracing::info!(
                "the kernels of {} have no PTX; compiling them with {nvrtc}",
                set.package()
            );
            load_sources(way, set, &nvrtc, load)
        }
        Compile::Nvrtc => {
            let nvrtc = find().map_err(|error| no_nvrtc("the kernels", &error))?;
            load_sources(way, set, &nvrtc, load)
        }
        Compile::Ptx | Compile::Auto => load_ptx(way, set, find, load),
    }
}

/// Loads the PTX of `set`, or its replacement if the driver cannot read the first of its files.
fn load_ptx<C: Compiler, M>(
    way: KernelLoading,
    set: &KernelSet,
    find: &impl Fn() -> Result<C, String>,
    load: &mut impl FnMut(&Image) -> Result<M, GpuError>,
) -> Result<Loaded<M>, GpuError> {
    let (arch, sources) = ptx::sources(set, way.target.arch);
    if arch == 0 {
        let least = set.ptx().iter().map(|(arch, ..)| *arch).min();
        let (arch, least) = (way.target.arch, least.unwrap_or(0));
        return Err(GpuError::BadLaunch {
            kernel: "all kernels".to_owned(),
            detail: format!("the device is sm_{arch}, they need sm_{least} or later"),
        });
    }
    let mut loaded = Vec::new();
    for source in &sources {
        let image = Image {
            name: source.path.to_owned(),
            ptx: source.text.to_owned(),
            cubin: None,
        };
        match load_image(way, image, load) {
            Ok(image) => loaded.push(image),
            // The first file decides, since one compiler has made all files.
            Err(error) if loaded.is_empty() && is_refusal(&error) => {
                let old = |nvrtc: String| too_old(way.target, source.text, &error, nvrtc);
                return load_in_place(way, set, find, load, &error, &old);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(loaded)
}

/// Compiles the sources of `set` by NVRTC and loads them, in place of PTX that the driver refused with `refusal`. Returns an error if the
/// options allow only PTX. `old` makes the error, from the reason why NVRTC did not help.
fn load_in_place<C: Compiler, M>(
    way: KernelLoading,
    set: &KernelSet,
    find: &impl Fn() -> Result<C, String>,
    load: &mut impl FnMut(&Image) -> Result<M, GpuError>,
    refusal: &GpuError,
    old: &impl Fn(String) -> GpuError,
) -> Result<Loaded<M>, GpuError> {
    if way.compile == Compile::Ptx {
        return Err(old("not asked".to_owned()));
    }
    if kernel_files(set).next().is_none() {
        return Err(old(format!("no source of {}", set.package())));
    }
    let nvrtc = find().map_err(old)?;
    tracing::info!("{refusal}; compiling the kernels with {nvrtc}");
    load_sources(way, set, &nvrtc, load).map_err(|error| {
        if is_refusal(&error) {
            old(format!(
                "{nvrtc}, but the driver refuses what it makes: {error}"
            ))
        } else {
            error
        }
    })
}

/// Compiles the sources of `set` and loads them.
fn load_sources<M>(
    way: KernelLoading,
    set: &KernelSet,
    nvrtc: &impl Compiler,
    load: &mut impl FnMut(&Image) -> Result<M, GpuError>,
) -> Result<Loaded<M>, GpuError> {
    let images = compile_set(nvrtc, set, way.target)?.into_iter();
    images.map(|image| load_image(way, image, load)).collect()
}

fn compile_set(
    nvrtc: &impl Compiler,
    set: &KernelSet,
    target: Target,
) -> Result<Vec<Image>, GpuError> {
    let texts: Vec<_> = embedded(set).collect();
    kernel_files(set)
        .map(|source| compile(nvrtc, source, &texts, target))
        .collect()
}

fn compile(
    nvrtc: &impl Compiler,
    source: CudaSource<'_>,
    headers: &[CudaSource<'_>],
    target: Target,
) -> Result<Image, GpuError> {
    let compiled = nvrtc.compile(source, headers, target.arch)?;
    Ok(Image {
        name: source.name.to_owned(),
        ptx: compiled.ptx,
        cubin: compiled.cubin,
    })
}

/// Loads the image as kernels of this device need it. It loads machine code if there is some, and the PTX if the driver refuses that code.
fn load_image<M>(
    way: KernelLoading,
    image: Image,
    load: &mut impl FnMut(&Image) -> Result<M, GpuError>,
) -> Result<(Image, M), GpuError> {
    let image = placed(image, way.location);
    let code = match image.cubin {
        Some(_) => None,
        None => (way.cubin)(way.target.arch, &image.ptx),
    };
    if code.is_some() {
        let with_code = Image {
            cubin: code,
            ..image.clone()
        };
        match load(&with_code) {
            Err(error @ GpuError::Driver { .. }) => {
                tracing::warn!("the machine code of {} is refused: {error}", image.name);
            }
            loaded => return loaded.map(|module| (with_code, module)),
        }
    }
    let module = load(&image)?;
    Ok((image, module))
}

/// Returns the image for this location. Kernels whose "device memory" is host memory need system scope for memory that others read.
fn placed(image: Image, location: MemoryLocation) -> Image {
    match location {
        MemoryLocation::Device => image,
        MemoryLocation::Host => Image {
            ptx: widened(&image.ptx),
            cubin: None,
            ..image
        },
    }
}

/// Returns what a refusal to load the image `name` means. `log` is what the driver's compiler says.
pub(super) fn refused(name: &str, refusal: GpuError, log: &str) -> GpuError {
    let invalid = matches!(refusal, GpuError::Driver { code, .. } if code == INVALID_PTX);
    if !invalid || log.contains(UNKNOWN_VERSION) {
        return refusal;
    }
    let log = match log {
        "" => "its compiler says nothing",
        log => log,
    };
    GpuError::Compile {
        file: name.to_owned(),
        log: format!("{refusal}: {log}"),
    }
}

fn is_refusal(error: &GpuError) -> bool {
    matches!(error, GpuError::Driver { code, .. } if REFUSALS.contains(code))
}

fn no_ptx(set: &KernelSet, nvrtc: String) -> GpuError {
    GpuError::NoPtx {
        package: set.package().to_owned(),
        why: set.no_ptx().unwrap_or("none was made").to_owned(),
        nvrtc,
    }
}

fn no_nvrtc(file: &str, error: &str) -> GpuError {
    GpuError::Compile {
        file: file.to_owned(),
        log: format!("NVRTC is {error}; name it by WARPVERBS_NVRTC=/path/to/libnvrtc.so"),
    }
}

fn too_old(target: Target, text: &str, refusal: &GpuError, nvrtc: String) -> GpuError {
    let version = ptx::version(text);
    let needs = Needs::of(version.0, version.1);
    GpuError::OldDriver(Box::new(OldDriver {
        driver: format!("{}.{}", target.driver / 1000, target.driver % 1000 / 10),
        ptx: format!("{}.{}", version.0, version.1),
        needed: format!("{}.{}", needs.cuda.0, needs.cuda.1),
        release: needs.release,
        refusal: refusal.to_string(),
        nvrtc,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Target = Target {
        arch: 90,
        driver: 12_040,
    };

    fn refusal(code: u32) -> GpuError {
        GpuError::Driver {
            call: "cuModuleLoadDataEx",
            name: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION".to_owned(),
            code,
        }
    }

    fn missing() -> Result<Nvrtc, String> {
        Err("not found: libnvrtc.so.13: cannot open shared object file".to_owned())
    }

    #[test]
    fn a_driver_that_reads_the_ptx_gets_it_and_nvrtc_is_not_even_looked_for() {
        let load = |image: &Image| Ok(image.name.clone());
        let never = || -> Result<Nvrtc, String> { panic!("looked for NVRTC") };
        let (loaded, _) = load_all(OLD, &CudaOptions::default(), never, load).unwrap();
        let (_, files) = ptx::sources(&LIBRARY, 90);
        assert_eq!(loaded.len(), files.len());
        assert!(
            loaded
                .iter()
                .all(|(image, name)| image.name == *name && image.cubin.is_none())
        );
    }

    #[test]
    fn an_old_driver_without_nvrtc_fails_with_both_versions_and_both_remedies() {
        let load = |_: &Image| Err::<(), _>(refusal(222));
        let error = load_all(OLD, &CudaOptions::default(), missing, load)
            .unwrap_err()
            .to_string();
        for part in [
            "runs CUDA 12.4",
            "PTX 9.0 needs CUDA 13.0",
            "release 580",
            "UNSUPPORTED_PTX_VERSION",
            "WARPVERBS_NVRTC",
            "libnvrtc.so.13: cannot open",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn another_failure_of_the_driver_is_not_taken_for_an_old_one() {
        let load = |_: &Image| Err::<(), _>(refusal(2));
        let error = load_all(OLD, &CudaOptions::default(), missing, load).unwrap_err();
        assert_eq!(error, refusal(2));
    }

    struct Fake;

    impl fmt::Display for Fake {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("libnvrtc.so.12 (12.4)")
        }
    }

    impl Compiler for Fake {
        fn compile(
            &self,
            main: CudaSource<'_>,
            _: &[CudaSource<'_>],
            arch: u32,
        ) -> Result<Compiled, GpuError> {
            Ok(Compiled {
                ptx: format!(".version 8.4\n.target sm_{arch} // {}", main.name),
                cubin: Some(vec![1; 7]),
            })
        }
    }

    #[test]
    fn an_old_driver_gets_what_nvrtc_makes_for_its_device() {
        let load = |image: &Image| match &image.cubin {
            Some(code) => Ok(code.len()),
            None => Err(refusal(218)),
        };
        let options = CudaOptions::default();
        let (loaded, _) = load_all(OLD, &options, || Ok(Fake), load).unwrap();
        assert_eq!(loaded.len(), kernel_files(&LIBRARY).count());
        for (image, code) in &loaded {
            assert!(image.ptx.contains("sm_90") && image.ptx.contains(&image.name) && *code == 7);
        }
        let refuses_all = |_: &Image| Err::<(), _>(refusal(222));
        let error = load_all(OLD, &options, || Ok(Fake), refuses_all)
            .unwrap_err()
            .to_string();
        let reason = "libnvrtc.so.12 (12.4), but the driver refuses what it makes";
        assert!(error.contains(reason), "{error}");
    }

    const TEXT: &str = ".version 8.4\n.visible .entry mine(\n)\n{ ret; }";
    static OF_PTX: KernelSet = KernelSet::new("of PTX", &[], &[(80, "sm_80/mine.ptx", TEXT)], &[]);
    static OF_SOURCES: KernelSet = KernelSet::new(
        "of sources",
        &[],
        &[],
        &[("kernels/mine.cu", ""), ("kernels/mine.cuh", "")],
    );
    static EMPTY: KernelSet = KernelSet::new("empty", &[], &[], &[]);

    fn way(compile: Compile) -> KernelLoading {
        KernelLoading {
            target: OLD,
            compile,
            location: MemoryLocation::Device,
            cubin: |_, _| None,
        }
    }

    #[test]
    fn machine_code_of_this_gpu_is_loaded_or_ptx_where_the_driver_refuses_it() {
        const NARROW: &str = ".version 8.4\nfence.release.gpu;";
        static OF_90: KernelSet =
            KernelSet::new("of 90", &[], &[(90, "sm_90/mine.ptx", NARROW)], &[]);
        let with_code = KernelLoading {
            cubin: |arch, text| (arch == 90 && text == NARROW).then(|| vec![1; 7]),
            ..way(Compile::Ptx)
        };
        let mut load = |image: &Image| Ok(image.cubin.is_some());
        let loaded = |way, set, load: &mut dyn FnMut(&Image) -> Result<bool, GpuError>| {
            let loaded = load_set(way, set, &missing, &mut |image: &Image| load(image));
            loaded.map(|loaded| loaded.into_iter().map(|(_, code)| code).collect::<Vec<_>>())
        };
        assert_eq!(loaded(with_code, &OF_90, &mut load).unwrap(), [true]);
        assert_eq!(loaded(with_code, &OF_PTX, &mut load).unwrap(), [false]);
        // Stores to host memory are widened, so that text has machine code of its own.
        let on_host = KernelLoading {
            location: MemoryLocation::Host,
            ..with_code
        };
        assert_eq!(loaded(on_host, &OF_90, &mut load).unwrap(), [false]);
        let widened = KernelLoading {
            cubin: |_, text| text.contains("fence.release.sys").then(|| vec![1; 7]),
            ..on_host
        };
        assert_eq!(loaded(widened, &OF_90, &mut load).unwrap(), [true]);
        let mut refuses_code = |image: &Image| match image.cubin {
            Some(_) => Err(refusal(200)),
            None => Ok(false),
        };
        assert_eq!(
            loaded(with_code, &OF_90, &mut refuses_code).unwrap(),
            [false]
        );
        let mut refuses_all = |_: &Image| Err(refusal(222));
        let error = loaded(with_code, &OF_90, &mut refuses_all).unwrap_err();
        assert!(matches!(error, GpuError::OldDriver(_)), "{error}");
    }

    #[test]
    fn a_set_of_another_crate_loads_its_ptx_or_else_compiles_its_sources() {
        let mut load = |image: &Image| Ok((image.name.clone(), image.cubin.is_some()));
        let never = || -> Result<Nvrtc, String> { panic!("looked for NVRTC") };
        let loaded = load_set(way(Compile::Auto), &OF_PTX, &never, &mut load).unwrap();
        assert_eq!(loaded[0].1, ("sm_80/mine.ptx".to_owned(), false));
        let loaded = load_set(way(Compile::Auto), &OF_SOURCES, &|| Ok(Fake), &mut load).unwrap();
        assert_eq!(loaded.len(), 1);
        assert_eq!(loaded[0].1, ("kernels/mine.cu".to_owned(), true));
    }

    #[test]
    fn a_set_without_ptx_and_nvrtc_says_what_writes_one_and_finds_the_other() {
        static WRITTEN: KernelSet = KernelSet::new("mine", &[], &[], &[("kernels/mine.cu", "")])
            .with_no_ptx("there is no PTX in kernels/ptx; `make ptx` writes it, before the build");
        let mut loads = 0;
        let mut load = |_: &Image| {
            loads += 1;
            Ok(())
        };
        let error = load_set(way(Compile::Auto), &WRITTEN, &missing, &mut load).unwrap_err();
        assert!(matches!(error, GpuError::NoPtx { .. }), "{error:?}");
        for part in [
            "the kernels of mine have no PTX in this program",
            "no PTX in kernels/ptx; `make ptx` writes it",
            "libnvrtc.so.13: cannot open",
            "WARPVERBS_NVRTC",
        ] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
        let error = load_set(way(Compile::Ptx), &WRITTEN, &|| Ok(Fake), &mut load).unwrap_err();
        assert!(error.to_string().contains("asks for PTX alone"), "{error}");
        assert_eq!(loads, 0);
    }

    #[test]
    fn a_set_that_the_device_cannot_use_is_an_error_that_names_its_package() {
        let mut load = |_: &Image| Ok(());
        for (set, compile) in [
            (&EMPTY, Compile::Auto),
            (&OF_PTX, Compile::Nvrtc),
            (&EMPTY, Compile::Ptx),
        ] {
            let error = load_set(way(compile), set, &missing, &mut load).unwrap_err();
            let package = set.package().to_owned();
            let device = "sm_90".to_owned();
            assert_eq!(error, GpuError::NotForDevice { package, device });
        }
        let mut refuse = |_: &Image| Err::<(), _>(refusal(222));
        let error = load_set(way(Compile::Auto), &OF_PTX, &missing, &mut refuse);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no source of of PTX"), "{error}");
    }

    #[test]
    fn nvrtc_alone_if_asked_for() {
        let options = CudaOptions {
            compile: Compile::Nvrtc,
            ..CudaOptions::default()
        };
        let (loaded, _) = load_all(OLD, &options, || Ok(Fake), |_| Ok(())).unwrap();
        assert!(loaded.iter().all(|(image, ())| image.cubin.is_some()));
        let error = load_all(OLD, &options, missing, |_| Ok(())).unwrap_err();
        assert!(matches!(error, GpuError::Compile { .. }), "{error}");
    }

    #[test]
    fn ptx_of_a_user_comes_behind_that_of_the_crate_and_sources_need_nvrtc() {
        let mine = CudaSource {
            name: "mine.ptx",
            text: ".version 8.4\n.visible .entry mine(\n)\n{ ret; }",
        };
        let options = CudaOptions {
            ptx: &[mine],
            ..CudaOptions::default()
        };
        let load = |image: &Image| Ok(image.name.clone());
        let (_, extra) = load_all(OLD, &options, missing, load).unwrap();
        assert_eq!(extra[0].1, "mine.ptx");
        let options = CudaOptions {
            sources: &[mine],
            ..CudaOptions::default()
        };
        let error = load_all(OLD, &options, missing, load)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("mine.ptx") && error.contains("WARPVERBS_NVRTC"),
            "{error}"
        );
    }

    #[test]
    fn kernels_over_host_memory_get_fences_of_system_scope() {
        let options = CudaOptions {
            location: MemoryLocation::Host,
            ..CudaOptions::default()
        };
        let (loaded, _) = load_all(OLD, &options, missing, |_| Ok(())).unwrap();
        assert!(!loaded.is_empty());
        for (image, ()) in loaded {
            assert!(!image.ptx.contains("fence.release.gpu"), "{}", image.name);
        }
    }
}
