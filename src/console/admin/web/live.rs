//! Dead letters as they come. The page is empty: its script asks the API for the last ones, and listens there for more.

use axum::extract::State;
use maud::html;

use super::super::api::Asked;
use super::page::{Trail, page};
use super::{Answered, Api, paths};

pub(super) async fn show(State(api): State<Api>, asked: Asked) -> Answered {
    asked.end()?;
    api.looks.enter(&asked).await?;
    let vhost = asked.place.vhost;
    let content = html! {
        h1 { "Dead letters as they come" }
        p { "Of queues that you may read, the newest first. This proxy alone tells of them: others have lists of their own." }
        section.watched aria-label="Dead letters" data-live=(paths::deaths(&vhost)) {
            noscript { p.problem { "This page takes JavaScript." } }
            p.actions {
                button type="button" data-show="pause" aria-pressed="false" { "Pause" }
                span role="status" aria-live="polite" data-show="state" { "connecting" }
            }
            ul.notes data-show="notes" aria-live="polite" hidden {}
            table.stacked {
                thead { tr {
                    th scope="col" { "Time" } th scope="col" { "Died in" } th scope="col" { "Reason" }
                    th scope="col" { "Exchange" } th scope="col" { "Routing key" } th scope="col" { "Outcome" }
                    th scope="col" { "Rejected by" } th.number scope="col" { "Bytes" }
                } }
                tbody data-show="rows" {}
            }
        }
    };
    let trail = Trail::vhost(&vhost).then("live".to_owned(), paths::live(&vhost));
    Ok(page("Dead letters as they come", &trail, &content))
}
