//! The URLs that settings and commands take, taken apart by one rule: an `@` stands once, between the password and the host, and a `#` nowhere.
//! Otherwise an unescaped character of a password would move the host: `amqp://me:p@ss#w/rd@rabbit` would lead to a host `ss`. No error
//! quotes a URL, as a password may stand in it.

use std::net::Ipv6Addr;

use percent_encoding::percent_decode_str;

const UNESCAPED: &str = "an `@`, `/`, `?`, `#` or `%` that belongs to a user, a password or a name is written as %40, %2F, %3F, %23 or %25";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url<'a> {
    pub(crate) scheme: &'a str,
    /// Without escapes; the password may be missing.
    pub(crate) user: Option<User>,
    hosts: &'a str,
    target: &'a str,
}

/// The password may be missing.
pub(crate) type User = (String, Option<String>);

/// Without brackets; the port may be missing.
pub(crate) type Host = (String, Option<u16>);

/// For possibly misplaced secrets: hides everything after `://`.
pub(crate) fn hidden(text: &str) -> String {
    match text.split_once("://") {
        Some((scheme, _)) => format!("{scheme}://***"),
        None => text.to_owned(),
    }
}

// === impl Url ===

impl<'a> Url<'a> {
    /// Trims white space: secret files often end with a line break.
    ///
    /// # Errors
    /// What is wrong, without quoting the URL.
    pub(crate) fn parse(text: &'a str) -> Result<Url<'a>, &'static str> {
        let (scheme, rest) = text.trim().split_once("://").ok_or("not a URL")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.matches('@').count() > 1 || target.contains(['@', '#']) {
            return Err(UNESCAPED);
        }
        let (user, hosts) = match authority.split_once('@') {
            Some((user, hosts)) => (Some(credentials(user)?), hosts),
            None => (None, authority),
        };
        Ok(Url {
            scheme,
            user,
            hosts,
            target,
        })
    }

    /// In order.
    ///
    /// # Errors
    /// A host is empty or malformed.
    pub(crate) fn hosts(&self) -> Result<Vec<Host>, &'static str> {
        let hosts = self.hosts.split(',').map(host);
        let hosts: Option<_> = hosts.collect();
        hosts.ok_or("a host or port in it cannot be read")
    }

    pub(crate) fn host(&self) -> Result<Host, &'static str> {
        match <[Host; 1]>::try_from(self.hosts()?) {
            Ok([host]) => Ok(host),
            Err(_) => Err("it names several hosts"),
        }
    }

    pub(crate) fn target(&self) -> String {
        match self.target.starts_with('/') {
            true => self.target.to_owned(),
            false => format!("/{}", self.target),
        }
    }

    pub(crate) fn path(&self) -> &'a str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Even if empty.
    pub(crate) fn has_query(&self) -> bool {
        self.target.contains('?')
    }
}

fn credentials(text: &str) -> Result<User, &'static str> {
    let decoded = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded
            .map(String::from)
            .map_err(|_| "its user or password is not UTF-8")
    };
    match text.split_once(':') {
        Some((user, password)) => Ok((decoded(user)?, Some(decoded(password)?))),
        None => Ok((decoded(text)?, None)),
    }
}

fn host(text: &str) -> Option<Host> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (address, port)
        }
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let fits = |character: char| character.is_alphanumeric() || "-_.".contains(character);
            (!name.is_empty() && name.chars().all(fits)).then_some((name, port))?
        }
    };
    let port = match port.strip_prefix(':') {
        Some("") => None,
        Some(port) => Some(port.parse().ok()?),
        None if port.is_empty() => None,
        None => return None,
    };
    Some((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::lines_hold;

    #[tokio::test]
    async fn a_url_is_taken_apart_as_the_table_says() {
        lines_hold("testdata/url.txt", async |line| match Url::parse(line) {
            _ if line.is_empty() => String::new(),
            Err(problem) => problem.to_owned(),
            Ok(url) => {
                let hosts = url.hosts();
                let one = url.host().is_ok();
                let (target, path) = (url.target(), url.path());
                let Url { scheme, user, .. } = url;
                format!("{scheme} {user:?} {hosts:?} one={one} {target} path={path:?}")
            }
        })
        .await;
    }

    #[test]
    fn white_space_around_it_does_not_count() {
        let url = Url::parse(" http://h/x?y\n").expect("a URL");
        assert_eq!((url.target(), url.has_query()), ("/x?y".to_owned(), true));
    }

    #[test]
    fn a_pasted_url_is_not_shown() {
        assert_eq!(hidden("amqp://me:secret@host/x"), "amqp://***");
        assert_eq!(hidden("localhost:5672"), "localhost:5672");
    }
}
