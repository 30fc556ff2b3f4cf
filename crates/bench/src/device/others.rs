//! What a put costs other projects, beside this one. Each project posts through its own function, on the same rings, records, registers and
//! sink.
//!
//! `./x gpu others FOLDER` compiles an adapter of ours (`kernels/others`) against the headers of each project, which this repository
//! does not have. The adapter is PTX, so the rows of other projects need a GPU.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::case::{Case, PostOptions, Scope, Sharing};
use super::post::{Posting, post};
use super::report::Times;
use crate::device::kernels::KERNELS;
use crate::error::BenchError;
use warpverbs::abi::{MODE_EXCLUSIVE, MODE_WIDE_CQ};
use warpverbs::gpu::{Gpu, GpuError, KernelSet};

/// The names of our two rows: the defaults of a program, and a CQ as long as the ring with a completion of each put.
const OURS: [&str; 2] = ["warpverbs", "warpverbs, wide CQ"];

/// A project with an adapter.
#[derive(Clone, Copy, Debug)]
struct Project {
    /// The name of the project and of its adapter.
    name: &'static str,
    /// The bits of `QpContext::mode` that say which CQ the project looks at.
    cq: u32,
}

const PROJECTS: [Project; 4] = [
    project("gpunetio", MODE_WIDE_CQ),
    project("ucx", 0),
    project("nvshmem", 0),
    project("deepep", 0),
];

const fn project(name: &'static str, cq: u32) -> Project {
    Project { name, cq }
}

/// The architectures for which adapters are compiled.
const ARCHITECTURES: [u32; 2] = [80, 90];

/// The puts that are measured.
#[derive(Clone, Debug)]
pub(crate) struct Puts {
    /// The numbers of bytes that a WQE names.
    pub(crate) bytes: Vec<u32>,
    /// The numbers of posters.
    pub(crate) blocks: Vec<u32>,
}

/// The results for all projects.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Others {
    /// The label `sink+` and the device.
    pub(crate) ran_on: String,
    /// True if times are those of hardware. If not, the report has no times.
    pub(crate) speed: bool,
    /// The memory of the doorbell register, `device` or `host`.
    pub(crate) doorbell: &'static str,
    /// The length of a ring in WQEBBs.
    pub(crate) depth: u32,
    /// The number of calls of each poster.
    pub(crate) calls: u32,
    /// The projects. This project is first, by default and with a wide CQ.
    pub(crate) projects: Vec<Measured>,
}

/// The results for one project.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    /// The name of the project.
    pub(crate) name: &'static str,
    /// Why this project has fewer rows than cases; None if it has all.
    pub(crate) refused: Option<String>,
    /// The cases, in the same order for all projects.
    pub(crate) rows: Vec<PutRow>,
}

/// The result for one case of one project.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PutRow {
    /// The sharing of QPs: `exclusive` or `shared`.
    pub(crate) sharing: &'static str,
    /// The number of bytes that each WQE named.
    pub(crate) bytes: u32,
    /// The number of posters.
    pub(crate) blocks: u32,
    /// The number of puts of all posters.
    pub(crate) puts: u64,
    /// The times; None where they are not those of hardware.
    pub(crate) times: Option<Times>,
}

/// Measures `puts` of this project, then of each project that has an adapter in `kernels`, as `sm_NN/NAME.ptx`. `options` has the rest of
/// the setting.
///
/// A project has fewer rows than cases if the device refuses its kernels, or if its puts are not what they should be. The result says why.
/// After a kernel that does not end nothing else is tried.
///
/// # Errors
///
/// An option out of its range, a folder without adapters, and the device's refusal of this project's kernels.
pub(crate) fn measure(
    gpu: &Arc<dyn Gpu>,
    options: &PostOptions,
    puts: &Puts,
    kernels: Option<&Path>,
) -> Result<Others, BenchError> {
    for &bytes in &puts.bytes {
        let options = options.clone().with_bytes(bytes);
        options.check(puts.blocks.iter().copied())?;
    }
    let adapters = kernels.map_or_else(|| Ok(Vec::new()), adapters)?;
    gpu.add_kernels(&KERNELS)?;
    let mut run = Run {
        gpu,
        options,
        puts,
        hangs: None,
    };
    let mut projects = vec![
        run.project(OURS[0], |run, rows| run.ours(rows)),
        run.project(OURS[1], |run, rows| run.ours_wide(rows)),
    ];
    for (project, set) in adapters {
        projects.push(run.project(project.name, |run, rows| run.theirs(project, set, rows)));
    }
    Ok(Others {
        ran_on: format!("sink+{}", gpu.label()),
        speed: run.speed(),
        doorbell: options.doorbell(),
        depth: options.depth,
        calls: options.calls,
        projects,
    })
}

impl Others {
    /// Returns why our rows are fewer than the cases, or None if they are all there. Without them the other projects have nothing to stand
    /// beside.
    #[must_use]
    pub(crate) fn failure(&self) -> Option<&str> {
        let ours = self.projects.iter().take(OURS.len());
        ours.filter_map(|ours| ours.refused.as_deref()).next()
    }
}

/// One measurement while it runs.
struct Run<'a> {
    gpu: &'a Arc<dyn Gpu>,
    options: &'a PostOptions,
    puts: &'a Puts,
    /// The project whose kernel has not ended.
    hangs: Option<&'static str>,
}

impl Run<'_> {
    fn speed(&self) -> bool {
        self.gpu.label() != "simt"
    }

    fn project(
        &mut self,
        name: &'static str,
        measure: impl FnOnce(&Self, &mut Vec<PutRow>) -> Result<(), BenchError>,
    ) -> Measured {
        let mut rows = Vec::new();
        let refused = match self.hangs {
            Some(other) => Some(format!("not tried: a kernel of {other} has not ended")),
            None => measure(self, &mut rows).err().map(|why| {
                if matches!(why, BenchError::Gpu(GpuError::Timeout { .. })) {
                    self.hangs = Some(name);
                }
                why.to_string()
            }),
        };
        Measured {
            name,
            refused,
            rows,
        }
    }

    fn ours(&self, rows: &mut Vec<PutRow>) -> Result<(), BenchError> {
        for (sharing, bytes, blocks) in self.puts.cases() {
            let case = Case {
                sharing,
                scope: Scope::Thread,
                blocks,
                record: true,
            };
            let kernel = case.kernel();
            rows.push(self.one(self.options, sharing, bytes, &Posting::of(&case, &kernel))?);
        }
        Ok(())
    }

    fn ours_wide(&self, rows: &mut Vec<PutRow>) -> Result<(), BenchError> {
        let options = PostOptions {
            signal_every: 1,
            ..self.options.clone()
        };
        for (sharing, bytes, blocks) in self.puts.cases() {
            let exclusive = match sharing {
                Sharing::Exclusive => MODE_EXCLUSIVE,
                Sharing::Shared => 0,
            };
            let posting = Posting {
                kernel: &format!("wv_bench_post_{}_wide_thread", sharing.name()),
                open: None,
                blocks,
                qps: sharing.qps(blocks),
                mode: exclusive | MODE_WIDE_CQ,
                batch: 1,
            };
            rows.push(self.one(&options, sharing, bytes, &posting)?);
        }
        Ok(())
    }

    fn theirs(
        &self,
        project: Project,
        set: &'static KernelSet,
        rows: &mut Vec<PutRow>,
    ) -> Result<(), BenchError> {
        if !self.speed() {
            return Err(BenchError::Wrong {
                case: "not measured".to_owned(),
                detail: "it is compiled for a GPU, and kernels run on the CPU".to_owned(),
            });
        }
        self.gpu.add_kernels(set)?;
        let kernel = |what: &str| format!("wv_other_{}_{what}", project.name);
        for (sharing, bytes, blocks) in self.puts.cases() {
            let posting = Posting {
                kernel: &kernel(sharing.name()),
                open: Some(&kernel("open")),
                blocks,
                qps: sharing.qps(blocks),
                mode: project.cq,
                batch: 1,
            };
            rows.push(self.one(self.options, sharing, bytes, &posting)?);
        }
        Ok(())
    }

    fn one(
        &self,
        options: &PostOptions,
        sharing: Sharing,
        bytes: u32,
        posting: &Posting<'_>,
    ) -> Result<PutRow, BenchError> {
        let Posting { kernel, blocks, .. } = *posting;
        let posted = post(self.gpu, &options.clone().with_bytes(bytes), posting);
        let case = || format!("{kernel} with {blocks} blocks, {bytes} bytes");
        let posted = posted.map_err(|why| why.in_case(&case()))?;
        let puts = u64::from(posting.qps) * posted.wqes;
        Ok(PutRow {
            sharing: sharing.name(),
            bytes,
            blocks,
            puts,
            times: self.speed().then(|| Times::of(&posted.times, puts, None)),
        })
    }
}

impl Puts {
    /// Returns sharing, bytes and posters of each case.
    fn cases(&self) -> impl Iterator<Item = (Sharing, u32, u32)> + '_ {
        let of = |sharing| {
            let with = move |bytes| self.blocks.iter().map(move |at| (sharing, bytes, *at));
            self.bytes.iter().copied().flat_map(with)
        };
        of(Sharing::Exclusive).chain(of(Sharing::Shared))
    }
}

/// Returns the adapters in `folder`. Their texts are leaked, because kernels of a device must last for the rest of the process.
fn adapters(folder: &Path) -> Result<Vec<(Project, &'static KernelSet)>, BenchError> {
    let refused = |why: String| BenchError::Option {
        what: "--kernels",
        value: folder.display().to_string(),
        limit: format!("a folder with adapters as ./x gpu others makes it: {why}"),
    };
    let mut found = Vec::new();
    for project in PROJECTS {
        let mut ptx = Vec::new();
        for architecture in ARCHITECTURES {
            let place = format!("sm_{architecture}/{}.ptx", project.name);
            match fs::read_to_string(folder.join(&place)) {
                Ok(text) => {
                    // The path at which machine code of this text lies, beside that of other kernels.
                    let path = format!("sm_{architecture}/others/{}.ptx", project.name);
                    ptx.push((architecture, &*path.leak(), &*text.leak()));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(refused(format!("{place}: {error}"))),
            }
        }
        if !ptx.is_empty() {
            let set = KernelSet::new(project.name, &[], ptx.leak(), &[]);
            found.push((project, &*Box::leak(Box::new(set))));
        }
    }
    if found.is_empty() {
        Err(refused(
            "it has no sm_NN/NAME.ptx of a known project".to_owned(),
        ))
    } else {
        Ok(found)
    }
}

/// Prints the table: each case of this project, and below it those of the others.
impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "puts of one thread on {}: doorbell register in {} memory, depth {}, {} calls of each poster",
            self.ran_on, self.doorbell, self.depth, self.calls
        )?;
        if !self.speed {
            writeln!(
                f,
                "kernels ran on the CPU: counts are real, times are a simulation's and not shown"
            )?;
        }
        writeln!(
            f,
            "{:<10} {:>6} {:>6} {:<18} {:>9} {:>10} {:>11}",
            "QPs", "bytes", "blocks", "project", "puts", "ns/put", "M puts/s"
        )?;
        let cases = self.projects.iter().map(|project| project.rows.len()).max();
        for case in 0..cases.unwrap_or(0) {
            for project in &self.projects {
                let Some(row) = project.rows.get(case) else {
                    continue;
                };
                let time = |digits: usize, value: fn(&Times) -> f64| match &row.times {
                    Some(times) => format!("{:.digits$}", value(times)),
                    None => "-".to_owned(),
                };
                writeln!(
                    f,
                    "{:<10} {:>6} {:>6} {:<18} {:>9} {:>10} {:>11}",
                    row.sharing,
                    row.bytes,
                    row.blocks,
                    project.name,
                    row.puts,
                    time(1, |times| times.ns_per_put),
                    time(2, |times| times.mputs_per_s),
                )?;
            }
        }
        for project in &self.projects {
            if let Some(why) = &project.refused {
                writeln!(f, "{}: {why}", project.name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use warpverbs::gpu::simt::SimtGpu;

    fn options() -> PostOptions {
        PostOptions {
            calls: 700,
            depth: 256,
            bytes: 8,
            signal_every: 8,
            host_doorbell: true,
            check: true,
            deadline: Duration::from_secs(60),
        }
    }

    fn puts() -> Puts {
        Puts {
            bytes: vec![8, 4096],
            blocks: vec![1, 3],
        }
    }

    /// Returns a folder with `text` as the adapter to gpunetio.
    fn folder(text: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sm_80")).unwrap();
        fs::write(folder.path().join("sm_80/gpunetio.ptx"), text).unwrap();
        folder
    }

    #[test]
    fn simt_counts_both_kinds_of_this_project_and_tells_why_others_are_absent() {
        let gpu: Arc<dyn Gpu> = SimtGpu::open().unwrap();
        let folder = folder(".version 8.0\n");
        let found = measure(&gpu, &options(), &puts(), Some(folder.path())).unwrap();
        let [ours, wide, gpunetio] = &found.projects[..] else {
            panic!("{found}");
        };
        for ours in [ours, wide] {
            // Each poster posts several laps of its ring.
            let counted: Vec<_> = ours.rows.iter().map(|row| row.puts).collect();
            assert_eq!(counted, [700, 2100, 700, 2100, 700, 2100, 700, 2100]);
            assert!(ours.rows.iter().all(|row| row.times.is_none()));
        }
        assert!(gpunetio.rows.is_empty(), "{found}");
        let text = found.to_string();
        let why = "gpunetio: not measured: it is compiled for a GPU";
        assert!(text.contains(why) && found.failure().is_none(), "{text}");
        assert!(text.contains("sink+simt") && !found.speed, "{text}");
    }

    #[test]
    fn a_folder_without_a_known_adapter_is_refused_by_name() {
        let gpu: Arc<dyn Gpu> = SimtGpu::open().unwrap();
        let refused = |folder: &Path| {
            let error = measure(&gpu, &options(), &puts(), Some(folder)).unwrap_err();
            error.to_string()
        };
        let text = refused(Path::new("/no/such/folder"));
        assert!(text.contains("/no/such/folder"), "{text}");
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sm_90")).unwrap();
        fs::write(folder.path().join("sm_90/unheard-of.ptx"), "").unwrap();
        let text = refused(folder.path());
        assert!(
            text.contains("no sm_NN/NAME.ptx of a known project"),
            "{text}"
        );
        fs::create_dir(folder.path().join("sm_90/ucx.ptx")).unwrap();
        let text = refused(folder.path());
        assert!(text.contains("sm_90/ucx.ptx: "), "{text}");
    }

    #[test]
    fn sizes_and_posters_out_of_range_are_refused_before_anything_runs() {
        let gpu: Arc<dyn Gpu> = SimtGpu::open().unwrap();
        let refused = |puts: Puts| {
            let error = measure(&gpu, &options(), &puts, None).unwrap_err();
            error.to_string()
        };
        let zero = Puts {
            bytes: vec![8, 0],
            ..puts()
        };
        assert!(refused(zero).contains("bytes is 0"));
        let many = Puts {
            blocks: vec![1, 1025],
            ..puts()
        };
        assert!(refused(many).contains("blocks is 1025"));
    }

    #[test]
    fn a_kernel_that_does_not_end_is_named_and_no_later_project_is_tried() {
        let gpu: Arc<dyn Gpu> = SimtGpu::open().unwrap();
        let (options, puts) = (options(), puts());
        let mut run = Run {
            gpu: &gpu,
            options: &options,
            puts: &puts,
            hangs: None,
        };
        let wrong = run.project("ucx", |_, _| {
            Err(BenchError::Wrong {
                case: "a put".to_owned(),
                detail: "it was lost".to_owned(),
            })
        });
        assert_eq!(wrong.refused.unwrap(), "a put: it was lost");
        let slow = run.project("nvshmem", |_, _| {
            Err(BenchError::Gpu(GpuError::Timeout {
                kernel: "wv_other_nvshmem_shared".to_owned(),
                waited: Duration::from_secs(40),
            }))
        });
        assert!(slow.refused.unwrap().contains("wv_other_nvshmem_shared"));
        let next = run.project("deepep", |_, _| panic!("it was tried"));
        let why = "not tried: a kernel of nvshmem has not ended";
        assert_eq!(next.refused.unwrap(), why);
    }

    #[test]
    fn rows_of_a_case_stand_below_each_other() {
        let row = |sharing, ns| PutRow {
            sharing,
            bytes: 8,
            blocks: 132,
            puts: 9,
            times: Some(Times {
                ns_per_put: ns,
                mputs_per_s: 2.5,
                full_ring: None,
            }),
        };
        let of = |name, refused, rows| Measured {
            name,
            refused,
            rows,
        };
        let found = Others {
            ran_on: "sink+a GPU".to_owned(),
            speed: true,
            doorbell: "device",
            depth: 1024,
            calls: 9,
            projects: vec![
                of(
                    OURS[0],
                    None,
                    vec![row("exclusive", 300.0), row("shared", 400.0)],
                ),
                of(
                    "ucx",
                    Some("it fell".to_owned()),
                    vec![row("exclusive", 350.0)],
                ),
            ],
        };
        let text = found.to_string();
        let lines: Vec<_> = text.lines().skip(2).collect();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = lines.into_iter().map(words).collect();
        assert_eq!(
            lines,
            [
                "exclusive 8 132 warpverbs 9 300.0 2.50",
                "exclusive 8 132 ucx 9 350.0 2.50",
                "shared 8 132 warpverbs 9 400.0 2.50",
                "ucx: it fell"
            ]
        );
    }
}
