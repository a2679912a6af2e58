//! Bytes of strangers as text in which nothing acts on a terminal or deceives the eye.

/// Rejects control characters, and those that change the writing direction, break the line or are
/// invisible.
pub fn is_harmless(character: char) -> bool {
    !character.is_control()
        && !matches!(
            character,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

pub(super) fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// At most `most` characters on one line. Replaces bytes that are not UTF-8; control characters
/// become spaces.
pub(super) fn line(bytes: &[u8], most: usize) -> String {
    let enough = bytes.get(..most.saturating_mul(4)).unwrap_or(bytes);
    let text = String::from_utf8_lossy(enough);
    let shown = |char: char| if char.is_control() { ' ' } else { char };
    let line: String = text.chars().take(most).map(shown).collect();
    line.trim().to_owned()
}

/// A body that is text: UTF-8 without control characters other than line feed, carriage return and
/// tab. If it was `cut`, its end may hold part of a character.
pub(super) fn of_body(bytes: &[u8], cut: bool) -> Option<&str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if cut && error.error_len().is_none() => {
            std::str::from_utf8(bytes.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    let acts = |char: char| char.is_control() && !matches!(char, '\n' | '\r' | '\t');
    (!text.contains(acts)).then_some(text)
}
