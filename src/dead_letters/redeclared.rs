//! `dlx-proxy redeclared`: the queues with another target than their arguments say, for people.

use super::{Failed, Said, request, table};
use crate::admin::client::Client;
use crate::cli::{OfVhost, Output};

/// The columns of the list.
const ALL: [&str; 3] = ["queue", "own-arguments", "last-declare"];

/// Asks, and says what was answered.
///
/// # Errors
/// When there is no answer.
pub async fn redeclared(client: &Client, place: &OfVhost) -> Result<Said, Failed> {
    let answer = client.get(&request::redeclared(&place.vhost)).await?;
    if place.printing.output == Output::Json {
        return Ok(Said::json(&answer));
    }
    let objects = |name: &str| answer[name].as_array().map_or(&[][..], |list| list);
    let columns = ALL.map(str::to_owned);
    let headed = !place.printing.non_interactive;
    let text = table::table(objects("redeclared"), &columns, &ALL, headed)?;
    Ok(Said::text(&answer, text))
}
