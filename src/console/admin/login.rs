//! Who asks, by HTTP Basic: a user of the broker. Whether the password is right, and what the user may see, the broker says.

use std::net::IpAddr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use thiserror::Error;

use axum::http::{HeaderMap, header};

use crate::amqp::ids::{ShortStr, Vhost};
use crate::link::Login;

const GUEST: &[u8] = b"guest";

/// Never printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Credentials {
    user: ShortStr,
    password: Bytes,
}

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(super) enum NoCredentials {
    #[error("log in with a name and password of the broker's (HTTP Basic)")]
    Missing,
    #[error(
        "the header `Authorization` is not HTTP Basic: base64 of `name:password`, the name up to 255 octets, no octet 0"
    )]
    Unreadable,
    #[error("`guest` can log in only from the machine that the proxy runs on")]
    Guest,
}

// === impl Credentials ===

impl Credentials {
    pub(super) fn of(headers: &HeaderMap, peer: IpAddr) -> Result<Credentials, NoCredentials> {
        let header = headers.get(header::AUTHORIZATION);
        let header = header.ok_or(NoCredentials::Missing)?;
        let credentials = Credentials::read(header.as_bytes()).ok_or(NoCredentials::Unreadable)?;
        if *credentials.user == *GUEST && !peer.to_canonical().is_loopback() {
            return Err(NoCredentials::Guest);
        }
        Ok(credentials)
    }

    fn read(header: &[u8]) -> Option<Credentials> {
        let (scheme, encoded) = header.split_at_checked(b"Basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") {
            return None;
        }
        let mut user = BASE64_STANDARD.decode(encoded.trim_ascii()).ok()?;
        // The name ends at the first colon, and an octet 0 would end name and password on their way to the broker.
        let colon = user.iter().position(|octet| *octet == b':')?;
        if user.contains(&0) {
            return None;
        }
        let password = user.split_off(colon + 1);
        user.truncate(colon);
        Some(Credentials {
            user: ShortStr::new(user)?,
            password: password.into(),
        })
    }

    pub(super) fn user(&self) -> &ShortStr {
        &self.user
    }

    pub(super) fn login(self, vhost: Vhost) -> Login {
        Login {
            vhost,
            user: self.user,
            password: self.password,
            seed: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: &str = "127.0.0.1";
    const FAR: &str = "192.0.2.1";

    fn of(header: &str, peer: &str) -> Result<(String, Bytes), NoCredentials> {
        let mut headers = HeaderMap::new();
        if !header.is_empty() {
            headers.insert(header::AUTHORIZATION, header.parse().expect("a header"));
        }
        let credentials = Credentials::of(&headers, peer.parse().expect("an address"))?;
        Ok((credentials.user.to_string(), credentials.password))
    }

    fn basic(credentials: &[u8]) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(credentials))
    }

    #[test]
    fn name_and_password_are_octets_around_the_first_colon() {
        let (user, password) = of(&basic(b"me:a:b\xff"), FAR).expect("credentials");
        assert_eq!((user.as_str(), &password[..]), ("me", &b"a:b\xff"[..]));
        let small = of(&basic(b"me:x").replace("Basic", "bASIC"), FAR);
        assert_eq!(small, Ok(("me".to_owned(), "x".into())));
        assert_eq!(of(&basic(b":"), FAR), Ok((String::new(), Bytes::new())));
    }

    #[test]
    fn what_is_not_basic_is_refused() {
        assert_eq!(of("", FAR), Err(NoCredentials::Missing));
        let long = [&[b'a'; 256][..], b":x"].concat();
        for unreadable in [
            "Basic",
            "Bearer bWU6eA==",
            "Basic §",
            "Basic bWU",
            &basic(b"no colon"),
            &basic(b"a\0b:c"),
            &basic(b"a:b\0c"),
            &basic(&long),
        ] {
            assert_eq!(of(unreadable, FAR), Err(NoCredentials::Unreadable));
        }
    }

    #[test]
    fn guest_comes_from_here_only() {
        for near in [NEAR, "::1", "::ffff:127.0.0.1", "127.1.2.3"] {
            assert!(of(&basic(b"guest:guest"), near).is_ok(), "{near}");
        }
        for far in [FAR, "::ffff:192.0.2.1", "2001:db8::1"] {
            let refused = of(&basic(b"guest:guest"), far);
            assert_eq!(refused, Err(NoCredentials::Guest), "{far}");
            assert!(of(&basic(b"guests:guest"), far).is_ok(), "{far}");
        }
    }

    #[test]
    fn a_login_does_not_print_its_password() {
        let headers = HeaderMap::from_iter([(
            header::AUTHORIZATION,
            basic(b"me:s3cret").parse().expect("a header"),
        )]);
        let credentials = Credentials::of(&headers, FAR.parse().expect("an address"));
        let login = credentials.expect("readable").login(Vhost::ROOT);
        assert_eq!(format!("{login:?}"), "me@/");
    }
}
