//! The IPv6 routes of this machine, which tell whether packets for an address stay on this machine.

use std::net::Ipv6Addr;
use std::{fs, io};

/// The file in which the kernel lists the IPv6 routes of all its routing tables.
const ROUTES: &str = "/proc/net/ipv6_route";
/// The flag of a route whose destination is this machine (`RTF_LOCAL`).
const LOCAL: u32 = 0x8000_0000;

/// Returns whether a local route leads to `ip`. The address need not be assigned to an interface. Local routes come before all other
/// routes.
pub(super) fn has_local(ip: Ipv6Addr) -> bool {
    local_interface(ip).is_some()
}

/// Returns the interface of the local route that leads to `ip`.
pub(super) fn local_interface(ip: Ipv6Addr) -> Option<String> {
    let table = table().ok()?;
    let line = table
        .lines()
        .find(|line| is_local(line, ip) == Some(true))?;
    line.split_ascii_whitespace().last().map(str::to_owned)
}

fn table() -> io::Result<String> {
    fs::read_to_string(ROUTES)
}

/// Returns whether `line` is a local route to `ip`; `None` if `line` is no line of the table.
///
/// The fields of a line are: destination, bits of its prefix, source, bits of its prefix, next hop, metric, references, uses, flags and the
/// interface. All except the interface are hexadecimal.
fn is_local(line: &str, ip: Ipv6Addr) -> Option<bool> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [destination, bits, _, _, _, _, _, _, flags, _] = fields[..] else {
        return None;
    };
    let destination = u128::from_str_radix(destination, 16).ok()?;
    let bits = u32::from_str_radix(bits, 16).ok()?;
    let flags = u32::from_str_radix(flags, 16).ok()?;
    let behind = 128u32.checked_sub(bits)?;
    let differs = u128::from(ip) ^ destination;
    let is_within = differs.checked_shr(behind).unwrap_or(0) == 0;
    Some(is_within && flags & LOCAL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: &str = "00000000000000000000000000000000";

    fn line(destination: &str, bits: &str, flags: &str) -> String {
        format!("{destination} {bits} {ZERO} 00 {ZERO} 00000400 00000001 00000000 {flags}       lo")
    }

    #[test]
    fn a_local_route_is_one_to_the_address_with_the_flag() {
        let ip = "fd00:5::7f01:203".parse().unwrap();
        let of = "fd000005000000000000000000000000";
        for (destination, bits, flags, expected) in [
            (of, "60", "80200001", true),
            (of, "20", "80000001", true),
            (ZERO, "00", "80200001", true),
            (of, "60", "00000001", false),
            (of, "80", "80200001", false),
            ("fd000005000000000000000100000000", "60", "80200001", false),
        ] {
            let line = line(destination, bits, flags);
            assert_eq!(is_local(&line, ip), Some(expected), "{line}");
        }
    }

    #[test]
    fn other_lines_are_none() {
        let ip = Ipv6Addr::LOCALHOST;
        let whole = line(ZERO, "00", "80200001");
        let cut = whole.strip_suffix("lo").unwrap();
        for line in [
            "",
            "Kernel IPv6 routing table",
            cut,
            &line(ZERO, "81", "0"),
            &line("xyz", "00", "0"),
        ] {
            assert_eq!(is_local(line, ip), None, "{line}");
        }
    }

    #[test]
    fn this_machine_reaches_itself_and_not_the_addresses_of_documentation() {
        let has_ipv6 = table().is_ok_and(|table| !table.is_empty());
        assert_eq!(has_local(Ipv6Addr::LOCALHOST), has_ipv6);
        assert!(!has_local("2001:db8::1".parse().unwrap()));
    }
}
