//! Writes inputs and outputs of each step as files for NumPy.

use std::path::{Path, PathBuf};

use super::npy;
use crate::error::DemoError;
use warpverbs::moe::{Batch, Combined, Moe, Source, Workspace};

/// Makes `directory` if it does not exist.
pub(crate) fn prepare(directory: &Path) -> Result<(), DemoError> {
    std::fs::create_dir_all(directory).map_err(|error| DemoError::file(directory, &error))
}

/// Writes a map of the control heap of `rank`.
pub(crate) fn control_heap(directory: &Path, rank: u32, map: &str) -> Result<(), DemoError> {
    let path = directory.join(format!("rank{rank}_control_heap.txt"));
    std::fs::write(&path, map).map_err(|error| DemoError::file(&path, &error))
}

/// The place of the files of one step and rank.
pub(crate) struct Dump {
    directory: PathBuf,
    prefix: String,
}

impl Dump {
    pub(crate) fn new(directory: &Path, step: u32, rank: u32) -> Self {
        Self {
            directory: directory.to_owned(),
            prefix: format!("step{step}_rank{rank}"),
        }
    }

    pub(crate) fn inputs(&self, moe: &Moe, batch: &Batch) -> Result<(), DemoError> {
        let (hidden, top_k) = (moe.config().hidden as usize, moe.config().top_k as usize);
        npy::write(&self.path("tokens"), hidden, &batch.x)?;
        npy::write(&self.path("routing"), top_k, &batch.experts)?;
        npy::write(&self.path("weights"), top_k, &batch.weights)
    }

    pub(crate) fn received(
        &self,
        moe: &Moe,
        work: &Workspace,
        got: &[Vec<Source>],
    ) -> Result<(), DemoError> {
        let number =
            |value: u32| i32::try_from(value).expect("experts, ranks and tokens are below 2^17");
        let (mut sources, mut rows) = (Vec::new(), Vec::new());
        for (local, of_expert) in got.iter().enumerate() {
            for source in of_expert {
                let id = moe.local_experts()[local];
                sources.extend([number(id), number(source.rank), number(source.token)]);
            }
            let received = work.received_rows(local, 0..of_expert.len())?;
            rows.extend(received.into_iter().flatten());
        }
        npy::write(&self.path("sources"), 3, &sources)?;
        npy::write(&self.path("received"), moe.config().hidden as usize, &rows)
    }

    pub(crate) fn output(&self, moe: &Moe, combined: &Combined) -> Result<(), DemoError> {
        npy::write(
            &self.path("output"),
            moe.config().hidden as usize,
            &combined.out,
        )
    }

    fn path(&self, what: &str) -> PathBuf {
        self.directory.join(format!("{}_{what}.npy", self.prefix))
    }
}
