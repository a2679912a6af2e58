//! What one user may read in one vhost, as the broker says. Its answers are believed for a while, within one answer of the API.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::super::login::Credentials;
use super::super::looks::{Looks, Wish};
use super::super::parameters::Place;
use super::super::problem::Problem;
use super::{Peer, wish};
use crate::amqp::ids::{ShortStr, Vhost};

/// What the broker said counts for so long.
const BELIEVED_FOR: Duration = Duration::from_secs(60);
/// Of so many queues at once: each question is a connection.
const MOST_QUEUES: usize = 100;

/// Asks the broker.
pub(super) struct Rights {
    looks: Looks,
    credentials: Credentials,
    peer: Peer,
    vhost: Vhost,
    said: BTreeMap<ShortStr, (Instant, bool)>,
    /// There were more queues than it may ask about.
    pub(super) were_too_many: bool,
}

// === impl Rights ===

impl Rights {
    /// Of a user who is let into the vhost.
    ///
    /// # Errors
    /// When the broker refuses the login, or cannot be asked.
    pub(super) async fn of(
        looks: Looks,
        credentials: Credentials,
        peer: Peer,
        vhost: Vhost,
    ) -> Result<Rights, Problem> {
        let mut rights = Rights {
            looks,
            credentials,
            peer,
            vhost,
            said: BTreeMap::new(),
            were_too_many: false,
        };
        // Somebody who is no user must not learn that there is nothing to see.
        rights.may_read(&ShortStr::EMPTY).await?;
        Ok(rights)
    }

    /// Whether the user may read that queue. Of one queue too many: no.
    ///
    /// # Errors
    /// When the broker refuses the login, or cannot be asked.
    pub(super) async fn may_read(&mut self, queue: &ShortStr) -> Result<bool, Problem> {
        let now = Instant::now();
        self.said.retain(|_, (at, _)| *at + BELIEVED_FOR > now);
        if let Some((_, said)) = self.said.get(queue) {
            return Ok(*said);
        }
        if self.said.len() > MOST_QUEUES {
            self.were_too_many = true;
            return Ok(false);
        }
        let place = Place::new(self.vhost.clone(), queue.clone());
        let may = may_read(&self.looks, self.credentials.clone(), self.peer, &place).await?;
        self.said.insert(queue.clone(), (now, may));
        Ok(may)
    }
}

/// Whether the broker lets the user read that queue.
///
/// # Errors
/// When it does not even let the user in.
pub(super) async fn may_read(
    looks: &Looks,
    credentials: Credentials,
    peer: Peer,
    place: &Place,
) -> Result<bool, Problem> {
    match ask(looks, credentials, peer, place).await {
        Ok(()) => Ok(true),
        Err(problem) if problem.is_about_the_queue() => Ok(false),
        Err(problem) => Err(problem),
    }
}

/// A look at nothing: only for what the broker says of the user, the vhost and the queue.
///
/// # Errors
/// When it says no, or cannot be asked.
pub(super) async fn ask(
    looks: &Looks,
    credentials: Credentials,
    peer: Peer,
    place: &Place,
) -> Result<(), Problem> {
    let wish = Wish {
        messages: Some(0),
        ..wish(credentials, peer, place)
    };
    looks.look(wish, (), |(), _| true).await.map(drop)
}
