//! Machines for tests. A description of a few lines is expanded into the files that sysfs of such a machine has.
//!
//! `tests/data/machines` has the descriptions. A line describes one thing. The things below it are indented by two more spaces, and `#`
//! begins a comment:
//!
//! ```text
//! numa 0 cpus 0-3                     a NUMA node; `cpus -` is one of memory alone
//! pages 65536                         size of a page, where it is not 4096
//! root 0000:15 numa 0                 a host bridge; `at PATH` says where below sys/devices it is
//!   15:01.0 bridge 8086:352a          a PCI function of its domain: what it is, vendor:device
//!     18:00.0 ib 15b3:1021            what may be: bridge, gpu, vga, ib, eth, host, other
//!       net ens3                      a network interface
//!       rdma mlx5_0                   an RDMA device
//!         port 1 Ethernet ACTIVE 200 ens3 10.1.0.7
//!         port 2 InfiniBand DOWN 400
//! rdma rxe0                           an RDMA device without PCI function
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A tree of files in a directory, which is removed when this is dropped.
#[derive(Debug)]
pub struct MachineTree(TempDir);

/// Returns all descriptions, by name.
///
/// # Panics
/// If they cannot be read.
#[must_use]
pub fn descriptions() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/machines");
    let files = fs::read_dir(folder).expect("tests/data/machines");
    let files = files.map(|entry| entry.expect("an entry").path());
    let named = files.filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".txt")?;
        Some((name.to_owned(), fs::read_to_string(&path).ok()?))
    });
    named.collect()
}

impl MachineTree {
    /// Makes the tree of the machine with this name in `tests/data/machines`.
    ///
    /// # Panics
    /// If no description of a machine has this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let all = descriptions();
        let known: Vec<_> = all.keys().collect();
        let text = all.get(name);
        Self::of(text.unwrap_or_else(|| panic!("no machine {name} among {known:?}")))
    }

    /// Makes the tree of the machine that `text` describes.
    ///
    /// # Panics
    /// If a line has none of the forms above, or files cannot be written.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let tree = Self(tempfile::tempdir().expect("a directory"));
        let things = Thing::all(text);
        let mut writer = Writer::new(&tree.path().join("sys"), &things);
        for thing in &things {
            writer.thing(thing);
        }
        writer.cpus();
        tree
    }

    /// Returns the directory that contains `sys`.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// A line of a description, with the lines below it.
struct Thing<'a> {
    words: Vec<&'a str>,
    below: Vec<Thing<'a>>,
}

impl<'a> Thing<'a> {
    fn all(text: &'a str) -> Vec<Self> {
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or("").trim_end());
        let lines = lines.filter(|line| !line.is_empty());
        let lines: Vec<(usize, &str)> = lines
            .map(|line| (line.len() - line.trim_start().len(), line.trim_start()))
            .collect();
        Self::block(&lines, 0)
    }

    fn block(lines: &[(usize, &'a str)], depth: usize) -> Vec<Self> {
        let mut things = Vec::new();
        let mut rest = lines;
        while let Some(((indent, line), behind)) = rest.split_first() {
            assert_eq!(*indent, depth, "indentation of '{line}'");
            let below = behind
                .iter()
                .take_while(|(indent, _)| *indent > depth)
                .count();
            things.push(Self {
                words: line.split_whitespace().collect(),
                below: Self::block(&behind[..below], depth + 2),
            });
            rest = &behind[below..];
        }
        things
    }

    /// Returns the word after `name`, if the line has `name`.
    fn option(&self, name: &str) -> Option<&'a str> {
        let at = self.words.iter().position(|word| *word == name)?;
        self.words.get(at + 1).copied()
    }

    fn bus(&self) -> Option<u8> {
        let (bus, _) = self.words[0].split_once(':')?;
        u8::from_str_radix(bus, 16).ok()
    }
}

/// The host bridge that a function is below.
#[derive(Clone, Copy)]
struct Root<'a> {
    domain: &'a str,
    node: Option<&'a str>,
}

struct Writer {
    sys: PathBuf,
    /// The CPUs by node.
    nodes: BTreeMap<u32, Vec<u32>>,
}

impl Writer {
    fn new(sys: &Path, things: &[Thing<'_>]) -> Self {
        let nodes = things.iter().filter(|thing| thing.words[0] == "numa");
        let node = |thing: &Thing<'_>| {
            (
                number(thing.words[1]),
                list(thing.option("cpus").expect("cpus")),
            )
        };
        let writer = Self {
            sys: sys.to_owned(),
            nodes: nodes.map(node).collect(),
        };
        for folder in [
            "bus/pci/devices",
            "class/infiniband",
            "class/net",
            "devices",
        ] {
            fs::create_dir_all(sys.join(folder)).expect(folder);
        }
        writer
    }

    fn thing(&mut self, thing: &Thing<'_>) {
        match thing.words[..] {
            ["numa", ..] => {}
            ["pages", "65536"] => {
                for size in [2048, 524_288, 16_777_216] {
                    let file = format!("kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages");
                    self.file(&self.sys.join(file), "0");
                }
            }
            ["root", bridge, ..] => {
                let place = thing.option("at").map_or_else(PathBuf::new, PathBuf::from);
                let place = self
                    .sys
                    .join("devices")
                    .join(place)
                    .join(format!("pci{bridge}"));
                let (domain, _) = bridge.split_once(':').expect("DOMAIN:BUS");
                let node = thing.option("numa").filter(|node| *node != "-1");
                for below in &thing.below {
                    self.function(below, &place, Root { domain, node });
                }
            }
            ["rdma", name] => {
                let place = self.sys.join("devices/virtual");
                self.rdma(name, thing, &place);
            }
            _ => panic!("no thing of a machine: {:?}", thing.words),
        }
    }

    fn function(&mut self, thing: &Thing<'_>, above: &Path, root: Root<'_>) {
        let [address, what, ids] = thing.words[..] else {
            panic!("no PCI function: {:?}", thing.words);
        };
        let address = format!("{}:{address}", root.domain);
        let place = above.join(&address);
        let class: u32 = match what {
            "bridge" => 0x06_0400,
            "gpu" => 0x03_0200,
            "vga" => 0x03_0000,
            "ib" => 0x02_0700,
            "eth" => 0x02_0000,
            "host" => 0x06_0000,
            "other" => 0x01_0802,
            _ => panic!("no PCI class: {what}"),
        };
        let (vendor, device) = ids.split_once(':').expect("VENDOR:DEVICE");
        let cpus = root.node.map(|node| self.nodes[&number(node)].clone());
        let cpus = cpus.unwrap_or_else(|| self.all_cpus());
        for (name, value) in [
            ("class", format!("{class:#08x}")),
            ("vendor", format!("0x{vendor}")),
            ("device", format!("0x{device}")),
            ("subsystem_vendor", format!("0x{vendor}")),
            ("subsystem_device", "0x0001".to_owned()),
            ("numa_node", root.node.unwrap_or("-1").to_owned()),
            ("local_cpus", mask(&cpus)),
        ] {
            self.file(&place.join(name), &value);
        }
        fs::write(place.join("config"), config(thing, class, vendor, device)).expect("config");
        self.link(&self.sys.join("bus/pci/devices").join(&address), &place);
        for below in &thing.below {
            match below.words[..] {
                ["net", name] => {
                    let interface = place.join("net").join(name);
                    self.file(&interface.join("operstate"), "up");
                    symlink("../..", interface.join("device")).expect("link");
                    self.link(&self.sys.join("class/net").join(name), &interface);
                }
                ["rdma", name] => {
                    self.rdma(name, below, &place);
                    let device = place.join("infiniband").join(name).join("device");
                    symlink("../..", device).expect("link");
                }
                _ => self.function(below, &place, root),
            }
        }
    }

    fn rdma(&self, name: &str, thing: &Thing<'_>, place: &Path) {
        let device = place.join("infiniband").join(name);
        self.file(&device.join("node_type"), "1: CA");
        self.file(&device.join("node_guid"), "0000:0000:0000:0001");
        self.file(&device.join("sys_image_guid"), "0000:0000:0000:0001");
        self.link(&self.sys.join("class/infiniband").join(name), &device);
        for port in &thing.below {
            let ["port", number, layer, state, rate, ref address @ ..] = port.words[..] else {
                panic!("no port: {:?}", port.words);
            };
            let place = device.join("ports").join(number);
            let (code, link) = match state {
                "ACTIVE" => (4, "5: LinkUp"),
                "INIT" => (2, "5: LinkUp"),
                "DOWN" => (1, "3: Disabled"),
                _ => panic!("no state: {state}"),
            };
            let speed = match rate {
                "400" => "4X NDR",
                "200" => "4X HDR",
                "100" => "4X EDR",
                _ => "1X EDR",
            };
            self.file(&place.join("state"), &format!("{code}: {state}"));
            self.file(&place.join("phys_state"), link);
            self.file(&place.join("link_layer"), layer);
            self.file(&place.join("rate"), &format!("{rate} Gb/sec ({speed})"));
            self.gids(&place, address);
        }
    }

    /// Writes the GIDs of a port. An Ethernet port has a link-local and an IPv4 GID, each as RoCE v1 and v2. An InfiniBand port has one
    /// GID, of the default subnet.
    fn gids(&self, port: &Path, address: &[&str]) {
        let local = "fe80:0000:0000:0000:0000:00ff:fe00:0001";
        let entries = match address {
            [] => vec![(local.to_owned(), "IB/RoCE v1", None)],
            [interface, address] => {
                let [a, b, c, d] = address.parse::<Ipv4Addr>().expect("IPv4").octets();
                let mapped = format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}");
                let of = |gid: &str, kind| (gid.to_owned(), kind, Some(*interface));
                let [v1, v2] = ["IB/RoCE v1", "RoCE v2"];
                vec![
                    of(local, v1),
                    of(local, v2),
                    of(&mapped, v1),
                    of(&mapped, v2),
                ]
            }
            _ => panic!("a port has an interface and an address: {address:?}"),
        };
        for (index, (gid, kind, interface)) in entries.iter().enumerate() {
            self.file(&port.join(format!("gids/{index}")), gid);
            self.file(&port.join(format!("gid_attrs/types/{index}")), kind);
            if let Some(interface) = interface {
                self.file(&port.join(format!("gid_attrs/ndevs/{index}")), interface);
            }
        }
        // This entry is not in use.
        let unused = "0000:0000:0000:0000:0000:0000:0000:0000";
        self.file(&port.join(format!("gids/{}", entries.len())), unused);
    }

    /// Writes the CPUs, with a package for each node, as hwloc needs them.
    fn cpus(&self) {
        let cpu = self.sys.join("devices/system/cpu");
        let all = self.all_cpus();
        for name in ["online", "possible", "present"] {
            self.file(&cpu.join(name), &listed(&all));
        }
        for (node, cpus) in &self.nodes {
            for of_node in cpus {
                let topology = cpu.join(format!("cpu{of_node}/topology"));
                for (name, value) in [
                    ("physical_package_id", node.to_string()),
                    ("core_id", of_node.to_string()),
                    ("thread_siblings", mask(&[*of_node])),
                    ("core_siblings", mask(cpus)),
                ] {
                    self.file(&topology.join(name), &value);
                }
            }
            let place = self.sys.join(format!("devices/system/node/node{node}"));
            self.file(&place.join("cpumap"), &mask(cpus));
            self.file(&place.join("cpulist"), &listed(cpus));
            let memory = format!("Node {node} MemTotal:       16777216 kB");
            self.file(&place.join("meminfo"), &memory);
        }
        let nodes: Vec<u32> = self.nodes.keys().copied().collect();
        self.file(
            &self.sys.join("devices/system/node/online"),
            &listed(&nodes),
        );
    }

    fn all_cpus(&self) -> Vec<u32> {
        self.nodes.values().flatten().copied().collect()
    }

    fn file(&self, path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a file below sys")).expect("directories");
        fs::write(path, format!("{text}\n")).expect("a file");
    }

    /// Makes a link in a class directory. It is relative, as the kernel makes it.
    fn link(&self, link: &Path, target: &Path) {
        let up = link
            .strip_prefix(&self.sys)
            .expect("below sys")
            .components()
            .count()
            - 1;
        let below = target.strip_prefix(&self.sys).expect("below sys");
        symlink(Path::new(&"../".repeat(up)).join(below), link).expect("link");
    }
}

/// Returns the first 256 bytes of configuration space: what a function is, and the buses below a bridge.
fn config(thing: &Thing<'_>, class: u32, vendor: &str, device: &str) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    let id = |digits: &str| {
        u16::from_str_radix(digits, 16)
            .expect("four digits")
            .to_le_bytes()
    };
    bytes[0..2].copy_from_slice(&id(vendor));
    bytes[2..4].copy_from_slice(&id(device));
    bytes[9..12].copy_from_slice(&class.to_le_bytes()[..3]);
    if thing.words[1] == "bridge" {
        bytes[0x0e] = 1; // header of a bridge
        bytes[0x18] = thing.bus().expect("a bus");
        let below = thing.below.iter().find_map(Thing::bus);
        bytes[0x19] = below.unwrap_or(0);
        bytes[0x1a] = last_bus(thing).unwrap_or(0);
    }
    bytes
}

fn last_bus(thing: &Thing<'_>) -> Option<u8> {
    let below = thing
        .below
        .iter()
        .filter(|below| below.words[0].contains(':'));
    below
        .filter_map(|below| below.bus().max(last_bus(below)))
        .max()
}

fn number(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

/// Returns the numbers of a list such as `0-3,8`. `-` is an empty list.
fn list(text: &str) -> Vec<u32> {
    if text == "-" {
        return Vec::new();
    }
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first)..=number(last)
    };
    text.split(',').flat_map(range).collect()
}

fn listed(numbers: &[u32]) -> String {
    let numbers: Vec<_> = numbers.iter().map(u32::to_string).collect();
    numbers.join(",")
}

/// Returns CPUs as the kernel writes a mask, for machines of at most 64 CPUs.
fn mask(cpus: &[u32]) -> String {
    let bits = cpus.iter().fold(0u64, |bits, cpu| bits | 1 << cpu);
    format!("{:08x},{:08x}", bits >> 32, bits & 0xffff_ffff)
}
