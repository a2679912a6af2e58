//! Exchanges of the plugin `x-delayed-message`, whose work the proxy can do.

use crate::management::Api;

use super::Report;

const NAMED: usize = 10;

pub(super) async fn examine(api: &Api, report: &mut Report) {
    // Without an answer nothing is said: all else has asked the same API.
    let found = api.plugin_exchanges().await.unwrap_or_default();
    if found.is_empty() {
        return;
    }
    let names: Vec<String> = found
        .iter()
        .map(|(vhost, name)| format!("{name} (vhost {vhost})"))
        .collect();
    let more = if names.len() > NAMED { ", …" } else { "" };
    let first = names[..names.len().min(NAMED)].join(", ");
    let says = format!(
        "{} of the plugin's type `x-delayed-message`: {first}{more}.",
        names.len()
    );
    let advice = "The proxy can delay without the plugin: docs/how-to/delayed-publish.md#move-from-the-plugin.";
    report.note("delayed exchanges", says, advice);
}
