//! `dlx-proxy doctor`: looks at all that the proxy needs, before it goes live and after, and says of each thing what is to be done. It reads
//! the settings of the proxy, and asks the broker as the proxy's user, by requests that change nothing.
//!
//! ```text
//! settings ─▶ Patient ─▶ own       certificates, room for clients
//!                     ├▶ handled   what the proxy that runs tells of its clients' queues
//!                     ├▶ nodes     does each answer, at each address, which version, let in to each vhost
//!                     ├▶ rights    what its user may do, and a client's
//!                     ├▶ queues    what is parked, who takes signals
//!                     ├▶ grant     the command that adds to the rights of a client's user
//!                     └▶ api       policies that act on the proxy's queues, feature flags, clocks, the record,
//!                                 intake exchanges that nothing uses                                              ─▶ Report
//! ```

use std::time::Duration;

use crate::amqp::ids::Vhost;
use crate::console::connection::Access;
use crate::descriptors::Clients;
use crate::http::Place;
use crate::intake::QueueType;
use crate::management::Api;
use crate::net::nodes::{Node, Resolver};
use crate::objects::Names;
use crate::own_user::{OwnUser, pattern, quoted, set_permissions};
use crate::tls::Certified;

pub use report::{Finding, Kind, Report};

mod api;
mod delayed;
mod grant;
mod handled;
mod nodes;
mod own;
mod policies;
mod queues;
mod record;
mod report;
mod rights;
mod unused;

const PATIENCE: Duration = Duration::from_secs(10);
/// As the management UI shows it.
const NAME: &str = "dlx-proxy doctor";

#[derive(Clone)]
pub struct Patient {
    pub nodes: Vec<Node>,
    pub resolver: Resolver,
    pub access: Access,
    pub client: Option<Access>,
    pub client_user: Option<String>,
    pub vhosts: Vec<Vhost>,
    pub names: Names,
    /// Declares of some queues may differ, so the proxy keeps a record.
    pub has_record: bool,
    pub intake_queue_type: QueueType,
    pub management: Option<Api>,
    pub admin: Option<Place>,
    pub certificates: Vec<Certified>,
    pub max_connections: Clients,
    pub max_admin_connections: usize,
}

// === impl Patient ===

impl Patient {
    fn own_user(&self) -> OwnUser {
        OwnUser {
            name: self.access.user.clone(),
            prefix: self.names.prefix().to_string(),
        }
    }
}

/// Takes some seconds, more if something does not answer.
pub async fn examine(patient: &Patient) -> Report {
    let mut report = Report::default();
    own::examine(patient, &mut report).await;
    for entered in nodes::examine(patient, &mut report).await {
        rights::examine(patient, &entered, &mut report).await;
        queues::examine(patient, &entered, &mut report).await;
    }
    handled::examine(patient, &mut report).await;
    grant::examine(patient, &mut report).await;
    api::examine(patient, &mut report).await;
    report
}

#[cfg(test)]
mod tests;
