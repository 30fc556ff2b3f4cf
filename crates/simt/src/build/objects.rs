//! The objects of all sources, compiled side by side.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{env, thread};

use super::error::BuildError;
use super::reuse;
use super::script::{debugged, variable};

/// Compiles the sources with `build`, as many at a time as cargo allows. Those whose path begins with one of `quick` are optimised less.
pub(super) fn compile(
    build: &cc::Build,
    sources: &[PathBuf],
    quick: &[PathBuf],
) -> Result<Vec<PathBuf>, BuildError> {
    let jobs = env::var("NUM_JOBS")
        .ok()
        .and_then(|jobs| jobs.parse().ok())
        .unwrap_or(1)
        .max(1);
    let out = PathBuf::from(variable("OUT_DIR")?);
    let debugged = debugged()?;
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut objects = Vec::new();
        while let Some(source) = sources.get(next.fetch_add(1, Relaxed)) {
            let is_quick = |prefix: &PathBuf| {
                let path = source.as_os_str().as_encoded_bytes();
                path.starts_with(prefix.as_os_str().as_encoded_bytes())
            };
            let mut build = build.clone();
            if quick.iter().any(is_quick) {
                build.flag("-Og");
            }
            if debugged
                .as_deref()
                .is_some_and(|name| source.ends_with(name))
            {
                build.flag("-Og").flag("-g");
            }
            objects.extend(reuse::object(&build, source, &out)?);
        }
        Ok(objects)
    };
    let results: Vec<Result<Vec<PathBuf>, BuildError>> = thread::scope(|scope| {
        let spawned: Vec<_> = (0..jobs.min(sources.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        let joined = spawned.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let objects: Result<Vec<_>, _> = results.into_iter().collect();
    Ok(objects?.concat())
}
