//! Which domains of a provider an engine takes.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::OfiError;
use super::facts::{Facts, SERVED};
use super::info::{Ask, Info, ask, providers};
use super::library::Library;
#[cfg(test)]
use super::trial::Trial;

/// The fabric of EFA whose operations go straight to the device. It is preferred to the other one.
const DIRECT: &str = "efa-direct";
/// The provider of EFA.
const EFA: &str = "efa";

/// What an engine wants of libfabric.
#[derive(Clone, Debug)]
pub struct OfiWish {
    /// The file of the library. None: the one that the loader finds.
    pub library: Option<PathBuf>,
    /// The name of the provider. None: the first that drives a NIC, which no provider over sockets or shared memory does.
    pub provider: Option<String>,
    /// The names of domains, in the order of the rails. Empty: all, in the order of the provider.
    pub domains: Vec<String>,
    /// The names of domains that are not taken unless they are named.
    pub without: Vec<String>,
    /// True if memory of GPUs will be registered.
    pub gpus: bool,
}

/// A domain of a provider, which can be opened.
#[derive(Clone)]
pub struct OfiDevice {
    pub(super) info: Arc<Info>,
    pub(super) library: Arc<Library>,
    #[cfg(test)]
    pub(super) trial: Trial,
}

impl OfiDevice {
    /// Returns the domains that an engine takes.
    ///
    /// # Errors
    /// [`OfiError`] says what the library or its provider lacks.
    pub fn find(wish: &OfiWish) -> Result<Vec<Self>, OfiError> {
        find(&Arc::new(Library::open(wish.library.as_deref())?), wish)
    }

    /// Returns the name of the provider.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.info.facts().provider
    }

    /// Returns the name of the fabric.
    #[must_use]
    pub fn fabric(&self) -> &str {
        &self.info.facts().fabric
    }

    /// Returns the release of the library, and its file.
    #[must_use]
    pub fn library(&self) -> String {
        let (version, path) = (self.library.version(), self.library.path());
        format!("libfabric {version} ({})", path.display())
    }

    /// Returns the name of the domain.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.facts().domain
    }

    /// Returns the address of the NIC on the PCI bus as sysfs writes it, if the library tells it.
    pub(crate) fn pci(&self) -> Option<&str> {
        self.facts().pci.as_deref()
    }

    /// Returns the CPUs beside the NIC as the kernel lists them, if the library and the system say which.
    pub(crate) fn local_cpus(&self) -> Option<String> {
        self.facts().of_pci("local_cpulist")
    }

    /// Returns what the library says of the domain.
    pub(crate) fn facts(&self) -> &Facts {
        self.info.facts()
    }

    /// Returns the domain, changed so.
    #[cfg(test)]
    pub(crate) fn with_trial(self, trial: Trial) -> Self {
        Self { trial, ..self }
    }
}

impl fmt::Debug for OfiDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info.fmt(f)
    }
}

/// Returns the domains that an engine takes. An error says what the provider lacks.
pub(super) fn find(library: &Arc<Library>, wish: &OfiWish) -> Result<Vec<OfiDevice>, OfiError> {
    match &wish.provider {
        Some(provider) => of_provider(library, provider, wish),
        None => over_a_nic(library, wish),
    }
}

/// Returns the domains of the first provider that drives a NIC.
fn over_a_nic(library: &Arc<Library>, wish: &OfiWish) -> Result<Vec<OfiDevice>, OfiError> {
    let mut known = providers(library);
    // EFA is what most machines without RC have.
    known.sort_by_key(|name| name != EFA);
    let mut refused = None;
    for provider in &known {
        let bare = Ask {
            any_mode: true,
            ..Ask::bare(provider)
        };
        let all = of(library, &bare).unwrap_or_default();
        if !all.iter().any(|info| info.facts().is_over_nic()) {
            continue;
        }
        match of_provider(library, provider, wish) {
            Ok(devices) => return Ok(devices),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    let version = library.version();
    Err(refused.unwrap_or_else(|| OfiError::NoNic {
        version,
        known: known.join(", "),
    }))
}

/// Returns the domains of one provider.
fn of_provider(
    library: &Arc<Library>,
    provider: &str,
    wish: &OfiWish,
) -> Result<Vec<OfiDevice>, OfiError> {
    let wanted = Ask {
        delivery: true,
        gpus: wish.gpus,
        ..Ask::bare(provider)
    };
    let mut found = of(library, &wanted)?;
    if found.is_empty() && wish.gpus {
        // GPUs are a wish. Their memory is refused when it is registered.
        found = of(
            library,
            &Ask {
                gpus: false,
                ..wanted
            },
        )?;
    }
    if found.is_empty() {
        return Err(why_none(library, &wanted));
    }
    let facts: Vec<Facts> = found.iter().map(|info| info.facts().clone()).collect();
    let chosen = choose(&facts, provider, wish)?;
    for at in &chosen {
        check(&facts[*at])?;
    }
    let mut found: Vec<Option<Info>> = found.into_iter().map(Some).collect();
    let infos = chosen.into_iter().filter_map(|at| found[at].take());
    let devices = infos.map(|info| OfiDevice {
        info: Arc::new(info),
        library: Arc::clone(library),
        #[cfg(test)]
        trial: Trial::default(),
    });
    Ok(devices.collect())
}

fn of(library: &Library, wanted: &Ask<'_>) -> Result<Vec<Info>, OfiError> {
    let refused = |errno| library.error("fi_getinfo", wanted.provider, i64::from(errno));
    let mut found = ask(library, wanted).map_err(refused)?;
    // A library may list providers over the one that is named.
    found.retain(|info| info.facts().provider == wanted.provider);
    Ok(found)
}

/// Finds out which part of what is asked the provider lacks.
fn why_none(library: &Library, wanted: &Ask<'_>) -> OfiError {
    let name = wanted.provider.to_owned();
    let has = |wanted: Ask<'_>| of(library, &wanted).unwrap_or_default();
    let any = Ask {
        gpus: false,
        any_mode: true,
        ..*wanted
    };
    let bare = Ask {
        delivery: false,
        ..any
    };
    if has(Ask { rma: false, ..bare }).is_empty() {
        let known = providers(library).join(", ");
        let version = library.version();
        return OfiError::NoProvider {
            name,
            version,
            known,
        };
    }
    if has(bare).is_empty() {
        let what = "RMA over RDM endpoints (FI_RMA, FI_EP_RDM)";
        return OfiError::Lacks { name, what };
    }
    let all = has(any);
    let modes: Vec<&str> = all
        .first()
        .map_or(Vec::new(), |info| info.facts().unserved());
    match (all.is_empty(), modes.is_empty()) {
        (true, _) => OfiError::Lacks {
            name,
            what: "completions after delivery (FI_DELIVERY_COMPLETE)",
        },
        (false, false) => OfiError::Modes {
            name,
            modes: modes.join(", "),
            served: SERVED,
        },
        (false, true) => OfiError::Lacks {
            name,
            what: "domain without modes that are not served",
        },
    }
}

/// The fewest bytes of CQ data: the tag of a lane and the number of a counter.
const LEAST_CQ_DATA: usize = 4;
/// The fewest bytes of a key: enough that an engine does not run out of keys.
const LEAST_KEY: usize = 4;

/// Refuses a domain whose numbers are too small.
fn check(facts: &Facts) -> Result<(), OfiError> {
    let domain = facts.domain.clone();
    if facts.cq_data < LEAST_CQ_DATA {
        return Err(OfiError::CqData {
            domain,
            bytes: facts.cq_data,
            least: LEAST_CQ_DATA,
        });
    }
    if !facts.chooses_keys() && facts.key_bytes < LEAST_KEY {
        return Err(OfiError::NarrowKeys {
            domain,
            bytes: facts.key_bytes,
            least: LEAST_KEY,
        });
    }
    Ok(())
}

/// Returns the places of the domains that are taken, among all that were found.
fn choose(found: &[Facts], provider: &str, wish: &OfiWish) -> Result<Vec<usize>, OfiError> {
    let mut order: Vec<usize> = (0..found.len()).collect();
    // The sort keeps the order of the library among alike.
    order.sort_by_key(|at| found[*at].fabric != DIRECT);
    let mut seen = HashSet::new();
    order.retain(|at| seen.insert(found[*at].domain.as_str()));
    if wish.domains.is_empty() {
        order.retain(|at| {
            let domain = &found[*at].domain;
            let mut without = wish.without.iter();
            !without.any(|name| is_called(domain, name))
        });
        if order.is_empty() {
            return Err(OfiError::AllLeftOut {
                provider: provider.to_owned(),
            });
        }
        // A loopback is the last choice.
        order.sort_by_key(|at| found[*at].domain == "lo");
        let fabric = order.first().map(|at| found[*at].fabric.clone());
        order.retain(|at| found[*at].is_by_ip() || Some(&found[*at].fabric) == fabric.as_ref());
        return Ok(order);
    }
    let place_of = |name: &String| {
        let place = order.iter().find(|at| is_called(&found[**at].domain, name));
        place.copied().ok_or_else(|| OfiError::NoDomain {
            provider: provider.to_owned(),
            name: name.clone(),
            known: order
                .iter()
                .map(|at| &*found[*at].domain)
                .collect::<Vec<_>>()
                .join(", "),
        })
    };
    wish.domains.iter().map(place_of).collect()
}

/// Returns whether `name` names the domain. Domains of EFA are called as the RDMA device, with the kind of their endpoints after it.
fn is_called(domain: &str, name: &str) -> bool {
    domain == name || domain.strip_suffix("-rdm") == Some(name)
}

#[cfg(test)]
mod tests {
    use libfabric_abi::bindings::{FI_ADDR_EFA, FI_MR_PROV_KEY, FI_SOCKADDR_IN};

    use super::*;

    fn facts(fabric: &str, domain: &str, addresses: u32) -> Facts {
        Facts {
            fabric: fabric.to_owned(),
            domain: domain.to_owned(),
            addresses,
            cq_data: 4,
            key_bytes: 8,
            ..Facts::default()
        }
    }

    fn wish(domains: &[&str]) -> OfiWish {
        OfiWish {
            library: None,
            provider: Some("p".to_owned()),
            domains: domains.iter().map(|it| (*it).to_owned()).collect(),
            without: Vec::new(),
            gpus: false,
        }
    }

    #[test]
    fn efa_direct_comes_before_efa_and_each_domain_once() {
        let found = [
            facts("efa", "rdmap0", FI_ADDR_EFA),
            facts("efa", "rdmap1", FI_ADDR_EFA),
            facts("efa-direct", "rdmap0", FI_ADDR_EFA),
            facts("efa-direct", "rdmap1", FI_ADDR_EFA),
        ];
        assert_eq!(choose(&found, "p", &wish(&[])), Ok(vec![2, 3]));
        assert_eq!(choose(&found, "p", &wish(&["rdmap1"])), Ok(vec![3]));
        // Rails of one engine have one fabric.
        assert_eq!(choose(&found[1..3], "p", &wish(&[])), Ok(vec![1]));
    }

    #[test]
    fn a_loopback_is_the_last_choice_and_an_unknown_name_is_refused() {
        let found = [
            facts("127.0.0.0/8", "lo", FI_SOCKADDR_IN),
            facts("10.0.0.0/8", "eth0", FI_SOCKADDR_IN),
            facts("fe80::/64", "eth0", FI_SOCKADDR_IN),
        ];
        assert_eq!(choose(&found, "p", &wish(&[])), Ok(vec![1, 0]));
        assert_eq!(choose(&found, "p", &wish(&["lo"])), Ok(vec![0]));
        let refused = choose(&found, "p", &wish(&["eth1"]));
        let refused = refused.unwrap_err().to_string();
        assert_eq!(
            refused,
            "provider 'p' has no domain 'eth1'; it has lo, eth0"
        );
    }

    #[test]
    fn a_domain_of_efa_has_the_name_of_its_device_too_and_may_be_left_out() {
        let found = ["rdmap0s6-rdm", "rdmap1s6-rdm"];
        let found = found.map(|domain| facts("efa-direct", domain, FI_ADDR_EFA));
        assert_eq!(choose(&found, "p", &wish(&["rdmap1s6"])), Ok(vec![1]));
        let but = |without: &[&str]| {
            let mut wish = wish(&[]);
            wish.without = without.iter().map(|it| (*it).to_owned()).collect();
            choose(&found, "p", &wish)
        };
        assert_eq!(but(&["rdmap0s6"]), Ok(vec![1]));
        let refused = but(&["rdmap0s6", "rdmap1s6-rdm"]).unwrap_err().to_string();
        let text = "WARPVERBS_DEVICE leaves out all domains of provider 'p'";
        assert_eq!(refused, text);
    }

    #[test]
    fn numbers_that_are_too_small_are_refused_with_the_limit() {
        let mut narrow = facts("f", "d", 0);
        assert_eq!(check(&narrow), Ok(()));
        narrow.key_bytes = 2;
        let text = "d takes keys of 2 bytes; there must be at least 4";
        assert_eq!(check(&narrow).unwrap_err().to_string(), text);
        narrow.mr_mode = FI_MR_PROV_KEY;
        assert_eq!(check(&narrow), Ok(()));
        narrow.cq_data = 0;
        let text = "d has 0 bytes of CQ data; there must be at least 4";
        assert_eq!(check(&narrow).unwrap_err().to_string(), text);
    }
}
