//! An alarm blocks publishers. That is no reason why consumers should stand still: they are what ends it.

use super::super::client::Client;
use super::super::net::Micros;
use super::World;

/// What concerns a consumer takes no longer: a reject in doubt is the broker's after 15 s, and a `close-wait` may follow.
const PATIENCE: Micros = 25_000_000;

impl World {
    /// # Errors
    /// A consumer does not see what it was sent, or its word is not heard, although the broker reads from its connection and nothing else is wrong.
    pub(super) fn consumers_go_on(&mut self) -> Result<(), String> {
        if !self.broker.has_alarm() {
            self.alarm_since = None;
            return Ok(());
        }
        let since = *self.alarm_since.get_or_insert(self.at);
        let then = self.at.saturating_sub(PATIENCE);
        if since > then || !self.troubles.only_outages() || !self.steps.is_multiple_of(16) {
            return Ok(());
        }
        let should_move = |(conn, channel, tag)| {
            let mut peers = self.peers.values();
            let peer = peers.find(|peer| peer.conn == conn && peer.is_open());
            let client = peer.and_then(|peer| peer.client);
            let mut clients = self.clients.iter();
            let client = clients.find(|of| Some(of.id) == client);
            let publishes = |client: &Client| !client.only_consumes && !self.plan.delays.is_empty();
            // Of one whose publishes are delayed the proxy reads no more.
            client.is_some_and(|client| {
                client.is_open() && client.deaf_until <= then && !publishes(client)
            })
                && !self.broker.is_blocked(conn)
                && self.broker.unacked(conn, channel).contains(&tag)
        };
        let tickets = self.settings[0].max_tickets;
        match self.accounts.stands_still(then, tickets, should_move) {
            Some(what) => Err(format!("a consumer stands still in an alarm: {what}")),
            None => Ok(()),
        }
    }
}
