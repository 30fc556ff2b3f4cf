//! XRC domains, which connect target QPs and SRQs of several contexts of a device.

/// An XRC domain.
#[derive(Debug)]
pub(crate) struct Xrcd {
    /// The contexts that have the domain open, once for each opening.
    pub(crate) users: Vec<u32>,
    /// The file by which other contexts can open the domain.
    pub(crate) file: Option<XrcFile>,
}

/// A file, by which contexts agree on an XRC domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcFile {
    /// The device that the file lies on.
    pub device: u64,
    /// The number of its inode on that device.
    pub inode: u64,
}

impl Xrcd {
    pub(crate) fn is_open_in(&self, context: u32) -> bool {
        self.users.contains(&context)
    }

    /// Removes one opening of the domain by `context`. Returns whether no context has the domain open any more.
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
