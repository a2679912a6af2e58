//! The form that edits a message and sends it back, where `admin-edit` allows it. The script sends what was changed, and nothing else.

use maud::{Markup, html};

use super::super::parameters::Place;
use super::{Api, paths, text};
use crate::dead_letter::edited::is_kept;
use crate::letter::{Body, Detail, Encoding, Header};

/// Types whose values a person can type.
const TYPED: &str = " longstr bool signedint long double ";

pub(super) fn form(api: &Api, place: &Place, detail: &Detail) -> Markup {
    let action = format!("dead-letters/{}/edit", detail.summary.id);
    html! {
        (said(&detail.headers))
        @if api.edits && may_be_typed(&detail.body) {
            section aria-labelledby="edit" {
                h2 #edit { "Edit and send back" }
                details {
                    summary { "Edit this message" }
                    form.edit data-edit=(paths::order(place, &action, "")) data-redrives=(paths::vhost(&place.vhost)) {
                        // HTML drops the first line break.
                        label.wide { "Body" textarea name="body" rows="12" spellcheck="false" data-crlf[detail.body.text.contains("\r\n")] { "\n" (detail.body.text) } }
                        fieldset {
                            legend { "Headers" }
                            @for header in detail.headers.iter().filter(|it| is_editable(it)) { (field(header)) }
                            div.row {
                                label { "New header" input name="new-name" maxlength="255" autocomplete="off" spellcheck="false"; }
                                label { "Its value" input name="new-value" autocomplete="off" spellcheck="false"; }
                            }
                        }
                        label { "To a queue, if not the one that it died in" input name="to-queue" maxlength="255" autocomplete="off" spellcheck="false"; }
                        p { "The original leaves this queue once the broker has confirmed the edited copy. The copy has no user-id." }
                        div.actions { button.main type="submit" { "Send the edited message" } }
                        output role="status" aria-live="polite" {}
                    }
                }
            }
        }
    }
}

/// Who changed it last.
fn said(headers: &[Header]) -> Markup {
    let mark = headers.iter().find(|it| it.name == "x-dlx-proxy-edited");
    let part = |name| mark.and_then(|mark| mark.value.get(name)?.as_str());
    html! {
        @if let (Some(by), Some(time)) = (part("by"), part("time")) {
            p { "Edited by " (text::name(by)) ", " (text::time(time)) "." }
        }
    }
}

fn field(header: &Header) -> Markup {
    let value = match header.value.as_str() {
        Some(text) => text.to_owned(),
        None => header.value.to_string(),
    };
    html! {
        div.row {
            label.wide { (text::name(&header.name)) textarea rows=(value.lines().count().clamp(1, 6)) spellcheck="false" data-name=(header.name) data-type=(header.kind) { "\n" (value) } }
            label.choice { input type="checkbox" aria-label={ "Remove " (text::visible(&header.name)) }; "remove" }
        }
    }
}

/// The whole of it is shown, as text.
fn may_be_typed(body: &Body) -> bool {
    body.encoding != Encoding::Hex && !body.cut
}

/// What was replaced or left out as it is shown could not be sent back.
fn is_editable(header: &Header) -> bool {
    let is_lossy = |text: &str| text.contains(['\u{fffd}', '\r', '\0']);
    let value = header.value.as_str().unwrap_or_default();
    TYPED.contains(&format!(" {} ", header.kind))
        && !is_kept(header.name.as_bytes())
        && !header.cut
        && !is_lossy(&header.name)
        && !is_lossy(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_may_be_edited_if_what_is_shown_is_all_of_it() {
        let header = |value: &str, cut| Header {
            name: "note".to_owned(),
            kind: "longstr",
            value: value.into(),
            cut,
        };
        for (value, cut, expected) in [
            ("to be continued…", false, true),
            ("to be continued…", true, false),
            ("\u{fffd}", false, false),
            ("two\r\nlines", false, false),
        ] {
            assert_eq!(is_editable(&header(value, cut)), expected, "{value}");
        }
    }
}
