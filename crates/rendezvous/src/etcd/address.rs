//! The parts of a URL `etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT..]/PREFIX[?OPTIONS]`. `etcds://` is the same by TLS.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use crate::StoreError;
use crate::check::check_key;

/// What the URLs of an etcd begin with.
const PLAIN: &str = "etcd://";
const BY_TLS: &str = "etcds://";

/// The members of an etcd, and the prefix of this store's keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The `HOST:PORT` of each named member.
    pub(super) members: Vec<String>,
    /// The prefix: all keys of the store begin with it and a `/`.
    pub(super) prefix: String,
    pub(super) user: Option<User>,
    /// The files for TLS. None: all requests go in plain text.
    pub(super) tls: Option<TlsFiles>,
}

/// Files that TLS needs, in PEM.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// The certificates of the authorities that the members' certificates come from. None: the authorities that browsers trust.
    pub(super) authorities: Option<PathBuf>,
    /// The certificate and the key of this rank.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

/// The options after a prefix, each at most once.
#[derive(Debug, Default)]
struct Options {
    insecure: bool,
    files: TlsFiles,
}

/// The user of a request. The password is never printed.
#[derive(PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:***", self.name)
    }
}

impl Address {
    /// Parses `url`.
    ///
    /// # Errors
    /// Another kind of URL; a password that would cross a network in plain text.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let (address, insecure) = Self::split(url).ok_or_else(|| StoreError::Url {
            url: without_user(url),
        })?;
        let open = |member: &&String| !is_loopback(member);
        match address.members.iter().find(open) {
            Some(member) if address.tls.is_none() && address.user.is_some() && !insecure => {
                Err(StoreError::PlainPassword {
                    url: without_user(url),
                    member: member.clone(),
                })
            }
            _ => Ok(address),
        }
    }

    /// Returns the address, and whether the URL allows plain text for a password.
    fn split(url: &str) -> Option<(Self, bool)> {
        let (rest, by_tls) = match url.strip_prefix(BY_TLS) {
            Some(rest) => (rest, true),
            None => (url.strip_prefix(PLAIN)?, false),
        };
        // In a password '/' and '@' are percent-encoded, so the first '/' ends the authority.
        let (authority, rest) = rest.split_once('/')?;
        let (prefix, options) = match rest.split_once('?') {
            Some((prefix, options)) => (prefix, Options::parse(options, by_tls)?),
            None => (rest, Options::default()),
        };
        check_key(prefix).ok()?;
        let (user, members) = match authority.split_once('@') {
            Some((user, members)) => (Some(User::parse(user)?), members),
            None => (None, authority),
        };
        let members: Vec<String> = members.split(',').map(str::to_owned).collect();
        let address = Self {
            members,
            prefix: prefix.to_owned(),
            user,
            tls: by_tls.then_some(options.files),
        };
        address
            .members
            .iter()
            .all(|member| is_member(member))
            .then_some((address, options.insecure))
    }
}

impl Options {
    /// Parses the options: `insecure` of `etcd://`; percent-encoded `ca=FILE`, `cert=FILE` and `key=FILE` of `etcds://`.
    fn parse(text: &str, by_tls: bool) -> Option<Self> {
        let (mut insecure, mut authorities, mut certificate, mut key) = (None, None, None, None);
        for option in text.split('&') {
            match option.split_once('=') {
                None if option == "insecure" && !by_tls => set(&mut insecure, ())?,
                Some((name, value)) if by_tls && !value.is_empty() => {
                    let file = PathBuf::from(decode(value)?);
                    match name {
                        "ca" => set(&mut authorities, file)?,
                        "cert" => set(&mut certificate, file)?,
                        "key" => set(&mut key, file)?,
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return None,
        };
        Some(Self {
            insecure: insecure.is_some(),
            files: TlsFiles {
                authorities,
                identity,
            },
        })
    }
}

/// Sets an option. Returns None if it was set before.
fn set<T>(option: &mut Option<T>, value: T) -> Option<()> {
    option.replace(value).is_none().then_some(())
}

impl User {
    fn parse(text: &str) -> Option<Self> {
        let (name, password) = text.split_once(':')?;
        let user = Self {
            name: decode(name)?,
            password: decode(password)?,
        };
        (!user.name.is_empty()).then_some(user)
    }
}

/// Returns the URL without user and password.
fn without_user(url: &str) -> String {
    match (url.rsplit_once('@'), url.split_once("://")) {
        (Some((_, rest)), Some((scheme, _))) => format!("{scheme}://***@{rest}"),
        (Some((_, rest)), None) => format!("***@{rest}"),
        (None, _) => url.to_owned(),
    }
}

/// Returns whether requests to this member stay on this machine.
fn is_loopback(member: &str) -> bool {
    let host = member.rsplit_once(':').map_or(member, |(host, _)| host);
    match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(address) => address.parse().is_ok_and(|a: Ipv6Addr| a.is_loopback()),
        None => host == "localhost" || host.parse().is_ok_and(|a: Ipv4Addr| a.is_loopback()),
    }
}

/// Returns whether the text is `HOST:PORT`, with an IPv6 address in brackets.
fn is_member(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let host_ok = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            let name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !host.is_empty() && host.bytes().all(name)
        }
    };
    // The port is decimal digits. A port with a leading zero is refused, since it could be read as octal.
    let is_plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
    host_ok && is_plain && port.parse::<u16>().is_ok()
}

/// Decodes a percent-encoded text: `%40` is `@`. Returns None if it is malformed.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_prefix_and_user_are_taken_apart() {
        let address = Address::parse("etcd://a.b-c:2379,10.0.0.1:1,[::1]:65535/wv/run_7").unwrap();
        assert_eq!(address.members, ["a.b-c:2379", "10.0.0.1:1", "[::1]:65535"]);
        assert_eq!(address.prefix, "wv/run_7");
        assert_eq!(address.user, None);
        let user = Address::parse("etcd://me%40work:p%2fw%25:x@localhost:1/p").unwrap();
        let user = user.user.unwrap();
        assert_eq!(
            (user.name.as_str(), user.password.as_str()),
            ("me@work", "p/w%:x")
        );
        assert_eq!(format!("{user:?}"), "me@work:***");
    }

    #[test]
    fn what_is_no_such_url_is_refused_and_no_password_is_repeated() {
        for url in [
            "etcd://",
            "etcd://host:1",
            "etcd://host:1/",
            "etcd:///prefix",
            "etcd://host/prefix",
            "etcd://host:0/prefix",
            "etcd://host:65536/prefix",
            "etcd://host:+1/prefix",
            "etcd://host:01/prefix",
            "etcd://host:1,/prefix",
            "etcd://host:1,other/prefix",
            "etcd://ho st:1/prefix",
            "etcd://[::1:1/prefix",
            "etcd://::1:1/prefix",
            "etcd://host:1/../x",
            "etcd://host:1/a//b",
            "etcd://secret@host:1/p",
            "etcd://:secret@host:1/p",
            "etcd://u:secret%4@host:1/p",
            "etcd://u:secret%zz@host:1/p",
            "etcd://u:secret%ff@host:1/p",
            "etcd://u:secret/x@host:1/p",
            "etcd://host:1/p?",
            "etcd://host:1/p?secure",
            "etcd://host:1/p?insecure&insecure",
            "etcd://host:1/p?insecure=1",
            "etcd://host:1/p?ca=/x",
            "etcds://host:1/p?insecure",
            "etcds://host:1/p?ca",
            "etcds://host:1/p?ca=",
            "etcds://host:1/p?ca=/x&ca=/y",
            "etcds://host:1/p?ca=%f",
            "etcds://host:1/p?cert=/x",
            "etcds://host:1/p?key=/x",
            "etcds://host:1/p?port=1",
            "secret@host",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert!(matches!(error, StoreError::Url { .. }), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn files_of_tls_are_taken_apart() {
        let address = Address::parse("etcds://u:p@h:1/run").unwrap();
        assert_eq!(address.tls, Some(TlsFiles::default()));
        let url = "etcds://h:1/a/b?key=%2fk%26y&ca=/etc/c a.pem&cert=/c";
        assert_eq!(
            Address::parse(url).unwrap(),
            Address {
                members: vec!["h:1".to_owned()],
                prefix: "a/b".to_owned(),
                user: None,
                tls: Some(TlsFiles {
                    authorities: Some("/etc/c a.pem".into()),
                    identity: Some(("/c".into(), "/k&y".into())),
                }),
            }
        );
    }

    #[test]
    fn a_password_leaves_this_machine_in_plain_text_only_when_the_url_says_so() {
        for host in ["localhost", "127.0.0.1", "127.8.9.10", "[::1]"] {
            assert!(Address::parse(&format!("etcd://u:secret@{host}:1/p")).is_ok());
        }
        for hosts in [
            "h:1",
            "10.0.0.1:1",
            "[fe80::1]:1",
            "localhost:1,h:1",
            "127.0.0.1.example:1",
        ] {
            let url = format!("etcd://u:secret@{hosts}/p");
            let error = Address::parse(&url).unwrap_err();
            assert!(matches!(error, StoreError::PlainPassword { .. }), "{error}");
            let error = error.to_string();
            assert!(
                error.contains("etcds://") && !error.contains("secret"),
                "{error}"
            );
            assert!(Address::parse(&format!("{url}?insecure")).is_ok());
            assert!(
                Address::parse(&format!("etcd://{hosts}/p")).is_ok(),
                "no password"
            );
            assert!(Address::parse(&url.replace("etcd", "etcds")).is_ok());
        }
    }
}
