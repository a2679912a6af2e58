//! The buttons that send messages back, remove or export them, or that adopt, alter and release queues; and the one dialog that they open. The script
//! sends its form, as a browser cannot give a form the header that the API wants.

use maud::{Markup, html};

use super::super::parameters::{Parameters, Place};
use super::{paths, text};
use crate::amqp::ids::{ShortStr, Vhost};

/// `query`: which messages, for the API; `which`: the same in words; `count`: how many, if that is known. Messages by their ids are not counted
/// again, as that takes another browse.
pub(super) fn buttons(place: &Place, query: &str, which: &str, count: Option<u64>) -> Markup {
    html! {
        span.moves data-query=(query) data-which=(which) data-count=[count] {
            button type="button" data-move="redrives" { "Send back" }
            button.danger type="button" data-move="purges" { "Purge" }
            a.button data-export href=(paths::order(place, "dead-letters/export", query)) download="dead-letters.jsonl" { "Export" }
        }
    }
}

/// `verb`: `adopt`, `release` or `alter`.
pub(super) fn plan(queue: &ShortStr, verb: &str, label: &str) -> Markup {
    html! {
        span.moves data-query=(paths::query([("queue", &**queue)])) data-which=(text::visible(&queue.to_string())) {
            button type="button" data-move=(verb) { (label) }
        }
    }
}

/// Where these messages died, why, and with which error.
pub(super) fn died(source: Option<&str>, reason: Option<&str>, error: Option<&str>) -> String {
    let how = match reason {
        Some("rejected") => "rejected in",
        Some("expired") => "expired in",
        Some("maxlen") => "pushed out of",
        Some("delivery_limit") => "at the delivery limit of",
        _ => "dead in",
    };
    let source = source.map(text::visible);
    let source = source.unwrap_or("an unknown queue".to_owned());
    let error = error.map(|error| format!(" with “{}”", text::visible(error)));
    format!(", {how} {source}{}", error.unwrap_or_default())
}

/// What a filter takes.
pub(super) fn filtered(parameters: &Parameters) -> String {
    let one = |name: &str| parameters.texts(name).next();
    let (source, reason, error) = (one("source"), one("reason"), one("error"));
    let others = parameters.pairs().map(|(name, _)| name);
    let others = others
        .filter(|name| !["source", "reason", "error", "exact", "offset", "limit"].contains(name));
    match (one("exact"), others.count()) {
        (Some(_), 0) => died(source.as_deref(), reason.as_deref(), error.as_deref()),
        (None, 0) if source.is_none() && reason.is_none() && error.is_none() => String::new(),
        _ => " that match the filter".to_owned(),
    }
}

pub(super) fn dialog(place: &Place) -> Markup {
    let queue = place.queue.to_string();
    let fields = html! {
        fieldset data-only="redrives" {
            legend { "Where to" }
            label.choice { input type="radio" name="to" value="source" checked; "Back to the queues that they died in" }
            label.choice { input type="radio" name="to" value="queue"; "To a queue" }
            label.choice { input type="radio" name="to" value="exchange"; "To an exchange" }
            label data-for="queue" hidden { "Queue" input name="to-queue" maxlength="255" autocomplete="off" spellcheck="false"; }
            label data-for="exchange" hidden { "Exchange" input name="to-exchange" maxlength="255" autocomplete="off" spellcheck="false"; }
            label data-for="exchange" hidden { "Routing key (empty: each its own)" input name="to-routing-key" maxlength="255" autocomplete="off" spellcheck="false"; }
        }
        div.row {
            label { "At most this many" input type="number" name="limit" min="1" inputmode="numeric" placeholder="all"; }
            label { "Messages per second" input type="number" name="rate" min="1" max="1000000" inputmode="numeric" placeholder="no limit"; }
            fieldset.plain data-only="redrives" {
                label { "Deaths in x-death" select name="history" { option value="keep" { "keep" } option value="new" { "remove" } } }
            }
        }
        fieldset.plain data-only="purges" {
            label { span { "They are gone for good. Type the name of the queue, " (text::name(&queue)) ", to confirm." } input data-typed required autocomplete="off" spellcheck="false"; }
        }
    };
    html! {
        noscript { p.problem { "Sending back and removing take JavaScript. The command line can do it, too: dlx-proxy dead-letters redrive." } }
        (asks(&paths::order(place, "", ""), &place.vhost, &queue, &fields))
    }
}

/// For the buttons of [`plan`].
pub(super) fn plans(vhost: &Vhost) -> Markup {
    html! {
        noscript { p.problem { "Changing queues takes JavaScript. The command line can do it, too: dlx-proxy queues adopt, alter and release." } }
        (asks(&paths::plans(vhost), vhost, "", &html! {}))
    }
}

fn asks(api: &str, vhost: &Vhost, name: &str, fields: &Markup) -> Markup {
    html! {
        dialog #move aria-labelledby="move-title" {
            form data-api=(api) data-vhost=(paths::vhost(vhost)) data-name=(text::visible(name)) {
                h2 #move-title data-show="title" {}
                p data-show="which" {}
                (fields)
                output role="status" aria-live="polite" data-show="state" {}
                div.actions {
                    button.main type="submit" data-show="go" {}
                    button type="button" data-close { "Cancel" }
                }
            }
        }
    }
}
