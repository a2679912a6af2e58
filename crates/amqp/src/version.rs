//! Which RabbitMQ it is.

/// A broker's `server-properties.version`: `4.3.6`, `3.13.0-rc.1`. Older versions are smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

// === impl Version ===

impl Version {
    pub const OLDEST: Version = Version(3, 10, 0);
    /// Major and minor number of the newest tested release. Newer ones are treated like it. A test
    /// compares this with README and the documents.
    pub const NEWEST: (u32, u32) = (4, 3);

    /// Newer than any tested release.
    pub fn is_unknown(self) -> bool {
        (self.0, self.1) > Version::NEWEST
    }

    /// Missing numbers count as 0, except the first two: without them the text is no version.
    pub fn parse(version: &[u8]) -> Option<Version> {
        let mut numbers = version
            .split(|octet| !octet.is_ascii_digit())
            .map_while(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        Some(Version(
            numbers.next()?,
            numbers.next()?,
            numbers.next().unwrap_or(0),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn a_version_is_its_numbers() {
        assert_eq!(Version::parse(b"3.10.8"), Some(Version(3, 10, 8)));
        assert_eq!(Version::parse(b"4.3.6-rc.1"), Some(Version(4, 3, 6)));
        assert_eq!(Version::parse(b"4.1"), Some(Version(4, 1, 0)));
        for no_version in [&b""[..], b"4", b"v4.1", b"4.x", b"99999999999.1"] {
            assert_eq!(Version::parse(no_version), None);
        }
    }
}
