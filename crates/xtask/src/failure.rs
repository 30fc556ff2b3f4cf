//! The failure of a task.

/// The status with which this process ends, and the lines that it then prints.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    /// The lines. There are none if a command that failed has printed why.
    message: String,
}

pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: u8, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    /// Returns a failure that prints nothing, because something else has printed why.
    pub(crate) fn silent(status: u8) -> Self {
        Self::new(status, "")
    }

    /// Prints why, each line in the form `x: why`.
    pub(crate) fn say(&self) {
        for line in self.message.lines() {
            eprintln!("x: {line}");
        }
    }
}

#[cfg(test)]
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// Adds the path of a file or folder to an error.
pub(crate) trait At<T> {
    fn at(self, path: impl AsRef<std::path::Path>) -> Result<T>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, path: impl AsRef<std::path::Path>) -> Result<T> {
        self.map_err(|error| Failure::new(1, format!("{}: {error}", path.as_ref().display())))
    }
}
