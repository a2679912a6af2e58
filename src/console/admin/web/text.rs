//! Texts of strangers. maud takes away what HTML would act on; what is left is what deceives the eye: characters that turn the direction of
//! writing, or that nobody sees.

use maud::{Markup, html};

use crate::console::count::plural;
pub(super) use crate::plain::lines as visible;

/// A part of a name without a place to break that no column should be as wide as.
const LONG: usize = 24;

/// May break behind dots, dashes, underscores and slashes; within a long part anywhere.
pub(super) fn name(text: &str) -> Markup {
    let text = visible(text);
    let parts = text.split_inclusive(['.', '-', '_', '/']);
    let mut words = parts.clone().flat_map(|part| part.split(' '));
    let is_long = words.any(|word| word.chars().count() > LONG);
    html! {
        @if text.is_empty() { span.none { "(empty)" } }
        @else {
            bdi.name.long[is_long] { @for (at, part) in parts.enumerate() { @if at > 0 { wbr; } (part) } }
        }
    }
}

/// With thin spaces between thousands.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

pub(super) fn count(of: u64, what: &str) -> String {
    format!("{} {what}{}", number(of), plural(of))
}

/// RFC 3339, made readable; UTC. The script shows how long ago that was, and this on hover.
pub(super) fn time(at: &str) -> Markup {
    html! { time datetime=(at) { (at.replace('T', " ").trim_end_matches('Z')) } }
}

/// In the largest unit with a value of at least two.
pub(super) fn duration(seconds: u64) -> String {
    let units = [(86_400, "days"), (3600, "h"), (60, "min")];
    let unit = units.into_iter().find(|(unit, _)| seconds >= 2 * unit);
    let (unit, name) = unit.unwrap_or((1, "s"));
    format!("{} {name}", seconds / unit)
}

pub(super) fn bytes(size: u64) -> String {
    bytesize::ByteSize(size).display().iec().to_string()
}

pub(super) fn hex_lines(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        match at {
            0 => {}
            at if at.is_multiple_of(32) => out.push('\n'),
            at if at.is_multiple_of(2) => out.push(' '),
            _ => {}
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_acts() {
        let shown = name("<script>alert('\"&')</script>\u{202e}\x1b[31m\0").into_string();
        assert_eq!(
            shown,
            "<bdi class=\"name long\">&lt;script&gt;alert('&quot;&amp;')&lt;/<wbr>script&gt;\\u{202e}\\u{1b}[31m\\u{0}</bdi>"
        );
        let plain = name("orders.dead-1").into_string();
        assert_eq!(plain, "<bdi class=\"name\">orders.<wbr>dead-<wbr>1</bdi>");
    }

    #[test]
    fn numbers_and_digits_are_grouped() {
        let numbers = [7, 123, 1_234_567].map(number);
        assert_eq!(numbers, ["7", "123", "1\u{202f}234\u{202f}567"]);
        let durations = [90, 120, 3 * 86_400].map(duration);
        assert_eq!(durations, ["90 s", "2 min", "3 days"]);
        assert_eq!(hex_lines("00ff10"), "00 ff 10");
        assert_eq!(hex_lines(&"0".repeat(34)).lines().count(), 2);
    }
}
