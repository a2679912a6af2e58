//! Numbers with what they count: 1 message, 2 messages.

pub(crate) fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", plural(number))
}

/// What ends a word behind that number.
pub(crate) fn plural(number: u64) -> &'static str {
    if number == 1 { "" } else { "s" }
}
