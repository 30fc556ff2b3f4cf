//! What the checker looks for, and where it writes its findings.

use super::Finding;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use thiserror::Error;

/// What the checker of an HCA looks for beyond what costs no time, and where it writes its findings.
///
/// As text (`SOFTHCA_CHECK`) it is a list with commas of `quiet` (nothing on stderr), `print`, `wqe`, `overlap`, and `all` for the last
/// two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckConfig {
    /// True if each finding is printed once on stderr. Programs that look at [`crate::Hca::findings`] do not need this. Devices of a
    /// preloaded library print.
    pub print: bool,
    /// True if the checker looks at the bytes of each WQE when its doorbell comes, when it is fetched and when it completes. They may not
    /// change.
    pub wqe_bytes: bool,
    /// True if the checker looks for operations under way on different QPs that change the same remote bytes. A program may do that on
    /// purpose.
    pub overlap: bool,
    /// A file to which a line is appended for each finding.
    pub file: Option<PathBuf>,
}

/// A word that the list cannot have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not quiet, print, wqe, overlap or all")]
pub struct CheckConfigError(pub String);

impl CheckConfig {
    /// Returns a configuration that prints each finding once on stderr.
    #[must_use]
    pub fn printing() -> Self {
        Self {
            print: true,
            ..Self::default()
        }
    }

    /// Returns this configuration with the changes that the words of `list` name.
    ///
    /// # Errors
    ///
    /// `list` has an unknown word.
    pub fn with(mut self, list: &str) -> Result<Self, CheckConfigError> {
        for word in list.split(',').map(str::trim) {
            match word {
                "" => {}
                "quiet" => self.print = false,
                "print" => self.print = true,
                "wqe" => self.wqe_bytes = true,
                "overlap" => self.overlap = true,
                "all" => {
                    self.wqe_bytes = true;
                    self.overlap = true;
                }
                other => return Err(CheckConfigError(other.to_owned())),
            }
        }
        Ok(self)
    }

    /// Writes a finding to stderr and to the file, as configured, in one write each: lines of several processes do not mix. A failed write
    /// is not an error. If the file cannot be written, an empty file `FILE.lost` beside it says so, since that needs less space.
    pub(super) fn tell(&self, device: &str, finding: Finding, text: &str) {
        if self.print {
            let line = format!("softhca: {device}: {text} [{finding}]\n");
            let _ = io::stderr().write_all(line.as_bytes());
        }
        let Some(path) = &self.file else {
            return;
        };
        let line = format!("{finding} {} {device}: {text}\n", std::process::id());
        if let Err(error) = append(path, &line) {
            let path = path.display();
            let line = format!(
                "softhca: {device}: a finding is lost, since {path} cannot be written: {error}\n"
            );
            let _ = io::stderr().write_all(line.as_bytes());
            let _ = File::create(format!("{path}.lost"));
        }
    }
}

fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(line.as_bytes())
}

impl FromStr for CheckConfig {
    type Err = CheckConfigError;

    fn from_str(list: &str) -> Result<Self, CheckConfigError> {
        Self::default().with(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_add_up_and_a_wrong_one_is_named() {
        let all: CheckConfig = "all".parse().unwrap();
        assert!(all.wqe_bytes && all.overlap && !all.print);
        let quiet = CheckConfig::printing().with("quiet, wqe").unwrap();
        assert!(quiet.wqe_bytes && !quiet.overlap && !quiet.print);
        let error = "wqe,everything".parse::<CheckConfig>().unwrap_err();
        assert!(error.to_string().starts_with("\"everything\" is not"));
    }

    #[test]
    fn a_finding_that_cannot_be_written_leaves_a_file_that_says_so() {
        let path = std::env::temp_dir().join(format!("softhca-lost-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let config = CheckConfig {
            file: Some(path.clone()),
            ..CheckConfig::default()
        };
        let said = path.with_extension("lost");
        config.tell("mlx5_0", Finding::WqeQpn, "a");
        let is_said = said.is_file();
        std::fs::remove_dir(&path).unwrap();
        std::fs::remove_file(&said).unwrap();
        assert!(is_said);
    }

    #[test]
    fn each_finding_is_a_line_in_the_file() {
        let path = std::env::temp_dir().join(format!("softhca-findings-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let config = CheckConfig {
            file: Some(path.clone()),
            ..CheckConfig::default()
        };
        config.tell("mlx5_0", Finding::WqeQpn, "a");
        config.tell("mlx5_0", Finding::CqOverrun, "b");
        let id = std::process::id();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            text,
            format!("wqe-qpn {id} mlx5_0: a\ncq-overrun {id} mlx5_0: b\n")
        );
    }
}
