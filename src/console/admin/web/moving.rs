//! The forms that send messages back or remove them. The script sends them, as a browser cannot give a form the header that the API wants.

use maud::{Markup, html};

use super::super::parameters::Place;
use super::{paths, text};

pub(super) enum Meant {
    All,
    Filtered,
    One,
}

pub(super) fn forms(place: &Place, query: &str, meant: &Meant) -> Markup {
    let what = match meant {
        Meant::All => "all messages of this queue",
        Meant::Filtered => "the messages that the filter takes",
        Meant::One => "this message",
    };
    let is_one = matches!(meant, Meant::One);
    html! {
        section aria-labelledby="moving" {
            h2 #moving { "Send back or remove" }
            noscript { p.problem { "This takes JavaScript. The command line can do it, too: dlx-proxy dead-letters redrive." } }
            (redrive(place, query, what, is_one))
            (purge(place, query, what, is_one))
        }
    }
}

fn redrive(place: &Place, query: &str, what: &str, is_one: bool) -> Markup {
    html! {
        details {
            summary { "Redrive " (what) }
            form.order data-order=(paths::order(place, "redrives", query)) data-redrives=(paths::vhost(&place.vhost)) data-counted[!is_one] {
                fieldset {
                    legend { "Where to" }
                    label.choice { input type="radio" name="to" value="source" checked; @if is_one { "back to the queue that it died in" } @else { "back to the queues that they died in" } }
                    label.choice { input type="radio" name="to" value="queue"; "to a queue" }
                    label.choice { input type="radio" name="to" value="exchange"; "to an exchange" }
                    label data-for="queue" hidden { "Queue" input name="to-queue" maxlength="255" autocomplete="off" spellcheck="false"; }
                    label data-for="exchange" hidden { "Exchange" input name="to-exchange" maxlength="255" autocomplete="off" spellcheck="false"; }
                    label data-for="exchange" hidden { "Routing key, if another than its own" input name="to-routing-key" maxlength="255" autocomplete="off" spellcheck="false"; }
                }
                div.row {
                    label { "History" select name="history" { option value="keep" { "keep the deaths" } option value="new" { "begin anew" } } }
                    @if !is_one { (bounds()) }
                }
                div.actions {
                    button type="submit" name="dry-run" value="true" { "Dry run" }
                    button.main type="submit" disabled[!is_one] { "Redrive" }
                }
                output role="status" aria-live="polite" {}
            }
        }
    }
}

fn purge(place: &Place, query: &str, what: &str, is_one: bool) -> Markup {
    let name = text::visible(&place.queue.to_string());
    html! {
        details {
            summary { "Purge " (what) }
            form.order data-order=(paths::order(place, "purges", query)) data-redrives=(paths::vhost(&place.vhost)) data-counted[!is_one] data-name=(name) {
                p { "What is purged is gone for good. Type the name of the queue, " (text::name(&place.queue.to_string())) ", to go on." }
                div.row {
                    label { "Name of the queue" input data-typed required autocomplete="off" spellcheck="false"; }
                    @if !is_one { (bounds()) }
                }
                div.actions {
                    button type="submit" name="dry-run" value="true" formnovalidate { "Dry run" }
                    button.danger type="submit" disabled { "Purge for good" }
                }
                output role="status" aria-live="polite" {}
            }
        }
    }
}

fn bounds() -> Markup {
    html! {
        label { "At most this many messages" input type="number" name="limit" min="1" inputmode="numeric"; }
        label { "Messages per second, at most" input type="number" name="rate" min="1" max="1000000" inputmode="numeric"; }
    }
}
