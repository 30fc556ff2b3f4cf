//! `etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT..]/PREFIX`, taken apart.

use std::fmt;

use crate::{StoreError, check_key};

/// What every such URL begins with.
const SCHEME: &str = "etcd://";

/// Where an etcd is, and which of its keys are ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// `HOST:PORT` of each member that is named.
    pub(super) members: Vec<String>,
    /// All keys begin with it and a `/`.
    pub(super) prefix: String,
    pub(super) user: Option<User>,
}

/// Who asks. The password is never printed.
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
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        Self::split(url).ok_or_else(|| StoreError::Url {
            url: without_user(url),
        })
    }

    fn split(url: &str) -> Option<Self> {
        let rest = url.strip_prefix(SCHEME)?;
        // A password may hold anything when it is percent-encoded, so no '/' or '@' stands in it.
        let (authority, prefix) = rest.split_once('/')?;
        check_key(prefix).ok()?;
        let (user, members) = match authority.split_once('@') {
            Some((user, members)) => (Some(User::parse(user)?), members),
            None => (None, authority),
        };
        let members: Vec<String> = members.split(',').map(str::to_owned).collect();
        members
            .iter()
            .all(|member| is_member(member))
            .then(|| Self {
                members,
                prefix: prefix.to_owned(),
                user,
            })
    }
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

/// The URL with what may be a password left out.
fn without_user(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, rest)) => format!("{SCHEME}***@{rest}"),
        None => url.to_owned(),
    }
}

/// `HOST:PORT`; an IPv6 address stands in brackets.
fn is_member(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let host_ok = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !host.is_empty() && host.bytes().all(name)
        }
    };
    host_ok && port.parse::<u16>().is_ok_and(|port| port != 0)
}

/// `%40` is `@`, and so on.
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
        let user = Address::parse("etcd://me%40work:p%2fw%25:x@h:1/p").unwrap();
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
        ] {
            let error = Address::parse(url).unwrap_err();
            assert!(matches!(error, StoreError::Url { .. }), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
