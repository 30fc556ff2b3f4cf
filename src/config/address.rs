//! Reads addresses with ports from variables and arguments.

use std::net::SocketAddr;

use crate::config::number::whole;

/// Returns host and port of `HOST:PORT`. The port is a whole number up to 65535. The host is not read further.
pub(crate) fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    Some((host, whole(port)?.try_into().ok()?))
}

/// Returns the address of `IP:PORT`. An IPv6 address stands in brackets, and the port is a whole number up to 65535.
pub(super) fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = host_and_port(text)?;
    format!("{ip}:{port}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_written_as_every_number_is() {
        for (text, shown) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("127.0.0.1:0x50", "127.0.0.1:80"),
            ("[::1]:0", "[::1]:0"),
            ("[fe80::1%2]:65535", "[fe80::1%2]:65535"),
        ] {
            assert_eq!(address(text).map(|it| it.to_string()), Some(shown.into()));
        }
        for text in [
            "127.0.0.1:+80",
            "127.0.0.1:080",
            "127.0.0.1:00",
            "127.0.0.1:65536",
            "127.0.0.1:",
            "127.0.0.1",
            "127.0.0.01:80",
            "::1:80",
            "host:80",
            ":80",
            "",
        ] {
            assert_eq!(address(text), None, "'{text}'");
        }
        assert_eq!(host_and_port("a.b:0x50"), Some(("a.b", 80)));
        assert_eq!(host_and_port("a.b:+80"), None);
        assert_eq!(host_and_port("a.b"), None);
    }
}
