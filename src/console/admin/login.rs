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
        "the header `Authorization` is not HTTP Basic: base64 of `name:password`, the name up to 255 bytes, no byte 0"
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
        // The name ends at the first colon, and an byte 0 would end name and password on their way to the broker.
        let colon = user.iter().position(|byte| *byte == b':')?;
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

    #[test]
    fn name_and_password_are_octets_around_the_first_colon() {
        let encoded = |text: &[u8]| format!("bASIC {}", BASE64_STANDARD.encode(text));
        for (text, expected) in [
            (&b"me:a:b\xff"[..], Some((&b"me"[..], &b"a:b\xff"[..]))),
            (b":", Some((b"", b""))),
            (b"no colon", None),
            (b"a\0b:c", None),
            (b"a:b\0c", None),
            (&[&[b'a'; 256][..], b":x"].concat(), None),
        ] {
            let found = Credentials::read(encoded(text).as_bytes());
            let found = found.as_ref().map(|it| (&it.user[..], &it.password[..]));
            assert_eq!(found, expected, "{}", text.escape_ascii());
        }
        for unreadable in ["Basic", "Bearer bWU6eA==", "Basic \u{a7}", "Basic bWU"] {
            assert!(Credentials::read(unreadable.as_bytes()).is_none());
        }
    }

    #[test]
    fn a_login_does_not_print_its_password() {
        let header = format!("Basic {}", BASE64_STANDARD.encode("me:s3cret"));
        let credentials = Credentials::read(header.as_bytes()).expect("readable");
        assert_eq!(format!("{:?}", credentials.login(Vhost::ROOT)), "me@/");
    }
}
