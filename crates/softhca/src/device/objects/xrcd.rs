//! XRC domains: what target QPs and SRQs of several contexts of a device have in common.

/// An XRC domain.
#[derive(Debug)]
pub(crate) struct Xrcd {
    /// Contexts that have it, once for each time that they opened it.
    pub(crate) users: Vec<u32>,
    /// The file by which others can open it.
    pub(crate) file: Option<XrcFile>,
}

/// A file, by which contexts agree on an XRC domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcFile {
    /// Device that it lies on.
    pub device: u64,
    /// Number of its inode on that device.
    pub inode: u64,
}

impl Xrcd {
    pub(crate) fn is_open_in(&self, context: u32) -> bool {
        self.users.contains(&context)
    }

    /// Takes one of the context's openings away. True if no context has the domain any more.
    pub(crate) fn close(&mut self, context: u32) -> bool {
        if let Some(at) = self.users.iter().position(|user| *user == context) {
            self.users.swap_remove(at);
        }
        self.users.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_lives_as_long_as_a_context_has_it_open() {
        let mut xrcd = Xrcd {
            users: vec![1, 2, 1],
            file: None,
        };
        assert!(!xrcd.close(1));
        assert!(xrcd.is_open_in(1));
        assert!(!xrcd.close(1));
        assert!(!xrcd.is_open_in(1));
        assert!(!xrcd.close(1), "2 has it still");
        assert!(xrcd.close(2));
    }
}
