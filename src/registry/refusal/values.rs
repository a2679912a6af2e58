//! How a refusal writes two values that differ, as `rabbit_misc:assert_args_equivalence` does.

use crate::amqp::table::Value;
use crate::registry::wording::Wording;

use super::BUT_CURRENT_IS;

/// As `rabbit_misc:equivalence_fail` writes two values: with their types only beside `none`. `None`: of a type that nobody gives a name.
pub(super) fn values(
    received: Option<Value<'_>>,
    current: Option<&[u8]>,
    wording: Wording,
) -> Option<Vec<u8>> {
    let (received, current) = match (received, current) {
        (Some(received), Some(current)) => (
            beside(received, wording)?,
            beside(Value::longstr(current), wording)?,
        ),
        (received, current) => (
            typed(received, wording)?,
            typed(current.map(Value::longstr), wording)?,
        ),
    };
    Some([&received[..], BUT_CURRENT_IS, &current].concat())
}

/// A value beside another.
pub(super) fn beside(value: Value<'_>, wording: Wording) -> Option<Vec<u8>> {
    match written(value, wording)? {
        (_, "void") => Some(b"none".to_vec()),
        (text, _) => Some([b"'", &text[..], b"'"].concat()),
    }
}

/// A value beside none, or none.
fn typed(value: Option<Value<'_>>, wording: Wording) -> Option<Vec<u8>> {
    let Some(value) = value else {
        return Some(b"none".to_vec());
    };
    let (text, kind) = written(value, wording)?;
    Some(
        [
            b"the value '",
            &text[..],
            b"' of type '",
            kind.as_bytes(),
            b"'",
        ]
        .concat(),
    )
}

/// A value in a text, and its type.
fn written(value: Value<'_>, wording: Wording) -> Option<(Vec<u8>, &'static str)> {
    if let Some(text) = value.as_text() {
        return Some((wording.shown(text), value.kind()));
    }
    let text = match value.tag {
        b'V' => "undefined".to_owned(),
        b't' => (value.data != [0]).to_string(),
        _ => value.as_integer()?.to_string(),
    };
    Some((text.into_bytes(), value.kind()))
}
