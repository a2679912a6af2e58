//! Surveys of a vhost: asked for by its intake, each in a task of its own, and always answered.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::amqp::ids::Vhost;
use crate::intake::Input;
use crate::machine::{Exchange, Mono, Survey};
use crate::net::clock::{Clock, SystemClock};
use crate::net::links::Surveyor;

use super::http::{Connection, NoAnswer, PATIENCE};
use super::{Management, listed};

impl Management {
    /// What makes surveys of a vhost.
    pub fn surveyor(&self, clock: SystemClock) -> Surveyor {
        let management = self.clone();
        // Vhosts of which it was said that they cannot be surveyed.
        let failing = Arc::new(Mutex::new(BTreeSet::new()));
        Arc::new(move |vhost, to_intake| {
            let (management, failing, vhost) = (management.clone(), failing.clone(), vhost.clone());
            tokio::spawn(async move {
                let turn = timeout(PATIENCE, management.turn.acquire()).await;
                let survey = match turn {
                    Ok(_) => management.survey(&vhost, clock.now().mono).await,
                    Err(_) => Err(NoAnswer::TooLate(PATIENCE)),
                };
                said(&vhost, &survey, &failing);
                // An intake that has ended needs no answer.
                let _ = to_intake.send(Input::Surveyed(survey.ok())).await;
            });
        })
    }

    /// All exchanges and bindings of a vhost.
    pub(super) async fn survey(&self, vhost: &Vhost, begun: Mono) -> Result<Survey, NoAnswer> {
        let path = percent_encode(vhost, NON_ALPHANUMERIC).to_string();
        let survey = self
            .api
            .ask(async |api| read(api, &path, begun).await)
            .await;
        self.metrics.management(survey.is_ok());
        survey
    }
}

/// In this order: a message is dropped for what is bound, so that is read last, and what an exchange was before it still was then, but
/// for one that was made anew in between, which would have lost its bindings.
async fn read(mut api: Connection<'_>, vhost: &str, begun: Mono) -> Result<Survey, NoAnswer> {
    let found = api.get(format!("exchanges/{vhost}"), listed::exchanges);
    let found = found.await?;
    let of_queues = api.get(format!("policies/{vhost}"), listed::of_queues);
    let of_queues = of_queues.await?;
    let bindings = api.get(format!("bindings/{vhost}"), listed::bindings);
    let exchange = |(exchange, policy): listed::Found| Exchange {
        policy: policy.is_some_and(|policy| !of_queues.contains(&policy)),
        ..exchange
    };
    Ok(Survey {
        begun,
        bindings: bindings.await?,
        exchanges: found.into_iter().map(exchange).collect(),
    })
}

/// Says what is news.
fn said(vhost: &Vhost, survey: &Result<Survey, NoAnswer>, failing: &Mutex<BTreeSet<Vhost>>) {
    let mut failing = failing.lock().unwrap_or_else(PoisonError::into_inner);
    match survey {
        Err(error) if failing.insert(vhost.clone()) => {
            warn!(%vhost, %error, "the vhost cannot be surveyed: cycles through named exchanges end one lap late");
        }
        Err(error) => debug!(%vhost, %error, "the vhost still cannot be surveyed"),
        Ok(_) if failing.remove(vhost) => info!(%vhost, "the vhost can be surveyed again"),
        Ok(_) => {}
    }
}
