//! A domain in numbers, as the library describes it, and what of it an engine does not serve.

use std::fs;

use libfabric_abi::bindings::{
    FI_ASYNC_IOV, FI_BUFFERED_RECV, FI_CONTEXT, FI_CONTEXT2, FI_HMEM, FI_MR_ALLOCATED,
    FI_MR_COLLECTIVE, FI_MR_ENDPOINT, FI_MR_HMEM, FI_MR_LOCAL, FI_MR_MMU_NOTIFY, FI_MR_PROV_KEY,
    FI_MR_RAW, FI_MR_RMA_EVENT, FI_MR_VIRT_ADDR, FI_MSG_PREFIX, FI_NOTIFY_FLAGS_ONLY,
    FI_RESTRICTED_COMP, FI_RX_CQ_DATA, FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6,
};

/// What registrations of a domain may ask of an engine.
pub(crate) const MR_MODE: i32 =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_HMEM;
/// What operations may ask of an engine. A context of `FI_CONTEXT2` has room for one of `FI_CONTEXT`.
pub(crate) const MODE: u64 = FI_CONTEXT | FI_CONTEXT2;
/// The same in words.
pub(crate) const SERVED: &str =
    "FI_CONTEXT2, FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY and FI_MR_HMEM";

const MODES: [(u64, &str); 8] = [
    (FI_CONTEXT, "FI_CONTEXT"),
    (FI_CONTEXT2, "FI_CONTEXT2"),
    (FI_MSG_PREFIX, "FI_MSG_PREFIX"),
    (FI_ASYNC_IOV, "FI_ASYNC_IOV"),
    (FI_RX_CQ_DATA, "FI_RX_CQ_DATA"),
    (FI_NOTIFY_FLAGS_ONLY, "FI_NOTIFY_FLAGS_ONLY"),
    (FI_RESTRICTED_COMP, "FI_RESTRICTED_COMP"),
    (FI_BUFFERED_RECV, "FI_BUFFERED_RECV"),
];

const MR_MODES: [(i32, &str); 10] = [
    (FI_MR_LOCAL, "FI_MR_LOCAL"),
    (FI_MR_RAW, "FI_MR_RAW"),
    (FI_MR_VIRT_ADDR, "FI_MR_VIRT_ADDR"),
    (FI_MR_ALLOCATED, "FI_MR_ALLOCATED"),
    (FI_MR_PROV_KEY, "FI_MR_PROV_KEY"),
    (FI_MR_MMU_NOTIFY, "FI_MR_MMU_NOTIFY"),
    (FI_MR_RMA_EVENT, "FI_MR_RMA_EVENT"),
    (FI_MR_ENDPOINT, "FI_MR_ENDPOINT"),
    (FI_MR_HMEM, "FI_MR_HMEM"),
    (FI_MR_COLLECTIVE, "FI_MR_COLLECTIVE"),
];

/// A domain, as `fi_getinfo` describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) provider: String,
    pub(crate) fabric: String,
    pub(crate) domain: String,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) mr_mode: i32,
    /// The form of addresses, `FI_SOCKADDR_IN` and others.
    pub(crate) addresses: u32,
    /// Bytes of a key.
    pub(crate) key_bytes: usize,
    /// Bytes of CQ data.
    pub(crate) cq_data: usize,
    /// The most endpoints. 0: the provider does not say.
    pub(crate) endpoints: usize,
    /// The most bytes of an operation.
    pub(crate) most_bytes: usize,
    /// The most local ranges of an operation.
    pub(crate) ranges: usize,
    /// The number of operations that an endpoint queues. 0: the provider does not say.
    pub(crate) depth: usize,
    /// True if a peer's bytes land only while a thread of this process calls the library.
    pub(crate) needs_progress: bool,
    /// The speed of the link in Mbit/s. 0: unknown.
    pub(crate) speed_mbps: u32,
    /// The address of the NIC on the PCI bus, as sysfs writes it.
    pub(crate) pci: Option<String>,
}

impl Facts {
    /// Returns the modes of this domain that no engine serves, in words.
    pub(crate) fn unserved(&self) -> Vec<&'static str> {
        let modes = MODES.iter().filter(|(bit, _)| self.mode & !MODE & bit != 0);
        let of_mr = MR_MODES
            .iter()
            .filter(|(bit, _)| self.mr_mode & !MR_MODE & bit != 0);
        let modes = modes.map(|(_, name)| *name);
        modes.chain(of_mr.map(|(_, name)| *name)).collect()
    }

    /// Returns whether peers name memory of this domain by its address. If not, they name its offset in the registration.
    pub(crate) fn by_address(&self) -> bool {
        self.mr_mode & FI_MR_VIRT_ADDR != 0
    }

    /// Returns whether the provider chooses the keys.
    pub(crate) fn chooses_keys(&self) -> bool {
        self.mr_mode & FI_MR_PROV_KEY != 0
    }

    /// Returns whether a peer that has a key of this domain is kept out when the key has ended. `shm` reads a peer's memory by the kernel
    /// (`smr_rma_fast` in `smr_rma.c`), which knows no keys, and has no answer for an operation that the peer refuses.
    pub(crate) fn ends_keys(&self) -> bool {
        self.provider.split(';').all(|layer| layer != "shm")
    }

    /// Returns whether memory of GPUs can be registered.
    pub(crate) fn takes_gpus(&self) -> bool {
        self.caps & FI_HMEM != 0
    }

    /// Returns whether a completion queue may not be asked by `fi_trywait` once an endpoint of it was closed. `ofi_rxm` leaves what the
    /// endpoint slept on in the list of the queue (`ofi_wait_add_fid` in `rxm_ep.c`, from 1.17 to 2.6), and then reads freed memory.
    pub(crate) fn forgets_closed(&self) -> bool {
        self.provider.contains("ofi_rxm")
    }

    /// Returns whether the provider drives a NIC itself, and not through sockets of the kernel or shared memory.
    pub(crate) fn is_over_nic(&self) -> bool {
        self.pci.is_some() && !self.is_by_ip()
    }

    /// Returns what sysfs says of the NIC in this file.
    pub(crate) fn of_pci(&self, file: &str) -> Option<String> {
        let pci = self.pci.as_ref()?;
        let text = fs::read_to_string(format!("/sys/bus/pci/devices/{pci}/{file}"));
        Some(text.ok()?.trim().to_owned())
    }

    /// Returns whether endpoints are reached by IP, so that domains of different fabrics may reach each other.
    pub(crate) fn is_by_ip(&self) -> bool {
        is_by_ip(self.addresses)
    }
}

/// Returns whether addresses of this form are of IP.
pub(crate) fn is_by_ip(addresses: u32) -> bool {
    [FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6].contains(&addresses)
}

/// Returns all bits of modes that this file has names for.
pub(crate) fn all_modes() -> (u64, i32) {
    let mode = MODES.iter().fold(0, |all, (bit, _)| all | bit);
    let mr_mode = MR_MODES.iter().fold(0, |all, (bit, _)| all | bit);
    (mode, mr_mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_are_not_served_are_named() {
        let mut facts = Facts {
            mode: MODE,
            mr_mode: MR_MODE,
            ..Facts::default()
        };
        assert_eq!(facts.unserved(), [""; 0]);
        facts.mode |= FI_RX_CQ_DATA;
        facts.mr_mode |= FI_MR_ENDPOINT | FI_MR_RAW;
        assert_eq!(
            facts.unserved(),
            ["FI_RX_CQ_DATA", "FI_MR_RAW", "FI_MR_ENDPOINT"]
        );
        for served in SERVED.split([',', ' ']).filter(|it| it.starts_with("FI_")) {
            let mut all = MODES.iter().map(|(_, name)| name);
            let mut of_mr = MR_MODES.iter().map(|(_, name)| name);
            assert!(all.any(|it| *it == served) || of_mr.any(|it| *it == served));
        }
    }
}
