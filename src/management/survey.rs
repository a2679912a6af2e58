//! All exchanges and bindings of a vhost, as the management API tells them: where dead letters go by named exchanges.

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

use crate::amqp::ids::Vhost;
use crate::machine::{Exchange, Survey};

use super::http::{Connection, NoAnswer};
use super::{Management, listed};

impl Management {
    pub(super) async fn survey(&self, vhost: &Vhost) -> Result<Survey, NoAnswer> {
        let path = percent_encode(vhost, NON_ALPHANUMERIC).to_string();
        let survey = self.api.ask(async |api| read(api, &path).await).await;
        self.metrics.management(survey.is_ok());
        survey
    }
}

async fn read(mut api: Connection, vhost: &str) -> Result<Survey, NoAnswer> {
    let found = api.get(format!("exchanges/{vhost}"), listed::exchanges);
    let found = found.await?;
    let of_queues = api.get(format!("policies/{vhost}"), listed::of_queues);
    let of_queues = of_queues.await?;
    let bindings = api.get(format!("bindings/{vhost}"), listed::bindings);
    let exchange = |(exchange, policy): listed::Found| Exchange {
        is_odd: exchange.is_odd || policy.is_some_and(|policy| !of_queues.contains(&policy)),
        ..exchange
    };
    Ok(Survey {
        bindings: bindings.await?,
        exchanges: found.into_iter().map(exchange).collect(),
    })
}
