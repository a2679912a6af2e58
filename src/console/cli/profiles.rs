//! Named proxies of a user: `~/.config/dlx-proxy/profiles.toml`.
//!
//! ```toml
//! [default]
//! url = "https://proxy.example:15673"
//! username = "me"
//! ```

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::Context;
use serde::Deserialize;

use crate::config::{Mistake, Mistakes};

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    pub(super) url: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) vhost: Option<String>,
}

// === impl Profile ===

impl Profile {
    /// `None`: the profile `default`, which need not exist.
    pub(super) fn find(name: Option<&str>) -> anyhow::Result<Profile> {
        let folder = std::env::var_os("XDG_CONFIG_HOME").filter(|folder| !folder.is_empty());
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
        let Some(folder) = folder.map(PathBuf::from).or_else(home) else {
            return Profile::of("", "profiles.toml", name);
        };
        let file = folder.join("dlx-proxy/profiles.toml");
        let text = match std::fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("cannot read {}", file.display()))?,
        };
        Profile::of(&text, &file.display().to_string(), name)
    }

    fn of(text: &str, file: &str, name: Option<&str>) -> anyhow::Result<Profile> {
        // The error's own text would quote a line, which may hold a password.
        let mistake = |problem: String| {
            Mistakes(vec![Mistake {
                place: file.to_owned(),
                subject: None,
                problem,
            }])
        };
        let profiles = toml::from_str::<BTreeMap<String, Profile>>(text);
        let mut profiles = profiles.map_err(|error| mistake(error.message().to_owned()))?;
        match (profiles.remove(name.unwrap_or("default")), name) {
            (Some(profile), _) => Ok(profile),
            (None, None) => Ok(Profile::default()),
            (None, Some(name)) => {
                let known = profiles.into_keys().collect::<Vec<_>>().join(", ");
                Err(mistake(format!("there is no profile `{name}`; there are: {known}")).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_found_by_its_name() {
        let file = "[default]\nurl = \"u\"\n[night]\nusername = \"n\"\n";
        let found = |file: &str, name| {
            let found = Profile::of(file, "FILE", name).map_err(|error| error.to_string());
            found.map(|it| (it.url.unwrap_or_default(), it.username.unwrap_or_default()))
        };
        let pair = |url: &str, user: &str| Ok((url.to_owned(), user.to_owned()));
        assert_eq!(found(file, None), pair("u", ""));
        assert_eq!(found(file, Some("night")), pair("", "n"));
        assert_eq!(found("", None), pair("", ""));
        let wrong = found(file, Some("day")).expect_err("no such profile");
        assert_eq!(
            wrong,
            "FILE: there is no profile `day`; there are: default, night"
        );
        let wrong = found("[default]\npasswort = \"s3cret\"", None).expect_err("a typing error");
        assert!(
            wrong.contains("passwort") && !wrong.contains("s3cret"),
            "{wrong}"
        );
    }
}
