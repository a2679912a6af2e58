//! Text of strangers on a terminal: what would move the cursor, change colours or turn the direction of writing is shown as an escape. What
//! was escaped once stays as it is.

use std::fmt::Write;

use crate::letter::is_harmless;

pub fn line(text: &str) -> String {
    escaped(text, |_| false)
}

pub fn lines(text: &str) -> String {
    escaped(text, |character| matches!(character, '\n' | '\t'))
}

/// For JSON text: JSON escapes the contents of strings itself.
pub fn json(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match is_harmless(character) || character == '\n' {
            true => plain.push(character),
            // All of these have four digits. Writing to a String cannot fail.
            false => drop(write!(plain, "\\u{:04x}", u32::from(character))),
        }
    }
    plain
}

fn escaped(text: &str, may_stay: fn(char) -> bool) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match is_harmless(character) || may_stay(character) {
            true => plain.push(character),
            false => plain.extend(character.escape_default()),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_raw() {
        let hostile = "a\x1b[31m\r\n\tb\u{7f}\u{9b}2J\u{202e}é";
        assert_eq!(line(hostile), r"a\u{1b}[31m\r\n\tb\u{7f}\u{9b}2J\u{202e}é");
        assert_eq!(
            lines(hostile),
            "a\\u{1b}[31m\\r\n\tb\\u{7f}\\u{9b}2J\\u{202e}é"
        );
    }

    #[test]
    fn what_nobody_sees_is_written_as_an_escape() {
        let hidden = "\u{61c}\u{200b}\u{200d}\u{200e}\u{2028}\u{2029}\u{202e}\u{2060}\u{2064}\u{2066}\u{206f}\u{feff}\r\0";
        let escaped: String = hidden.chars().flat_map(char::escape_default).collect();
        assert_eq!(lines(hidden), escaped);
    }

    #[test]
    fn json_stays_what_it_was() {
        let hostile = serde_json::json!({ "a\u{9b}": "\u{7f}\x1b\n\u{202e}\u{feff}é" });
        let written = serde_json::to_string_pretty(&hostile).expect("JSON");
        let plain = json(&written);
        assert!(
            plain.chars().all(|it| is_harmless(it) || it == '\n'),
            "{plain}"
        );
        let read: serde_json::Value = serde_json::from_str(&plain).expect("JSON");
        assert_eq!(read, hostile);
    }
}
