//! Settings and values that there were before, and what to do instead. Without the value all of the setting is gone.

const GONE: [(&str, Option<&str>, &str); 1] = [(
    "bcc",
    None,
    "BCC keys always count at a later death: remove it",
)];

/// What to do instead of this setting, or of this value of it.
pub(super) fn instead(setting: &str, value: Option<&str>) -> Option<&'static str> {
    let mut gone = GONE.iter();
    gone.find(|(name, of, _)| (*name, *of) == (setting, value))
        .map(|(.., words)| *words)
}
