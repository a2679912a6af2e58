//! An alarm blocks publishers. That is no reason why consumers should stand still: they are what ends it.

use super::super::client::Client;
use super::super::model::Conn;
use super::super::net::{End, Micros};
use super::super::proxy::Which;
use super::World;

/// What concerns a consumer takes no longer: a reject in doubt is the broker's after 15 s, and a `close-wait` may follow.
const PATIENCE: Micros = 25_000_000;

/// What a client holds for too long is taken back so soon after its timeout: what its channel waits for may come first.
const SLACK: Micros = 4_000_000;

impl World {
    /// # Errors
    /// A session does not take back what its client holds for too long, although nothing is wrong.
    pub(super) fn consumers_let_go(&mut self) -> Result<(), String> {
        let calm = self.troubles.never_any() && !self.broker.has_alarm();
        let tickets = self.settings[0].max_tickets > 16 && self.settings[0].retained >= 1 << 20;
        if !calm || !tickets || !self.steps.is_multiple_of(16) {
            return Ok(());
        }
        // What is taken back may have to be published, behind all that waits for room on that link.
        let proxies = self.proxies.iter().flatten();
        let mut links = proxies.filter_map(|proxy| proxy.tcp_of(Which::Publisher));
        let is_full = links.any(|tcp| !self.net.writable(tcp, End::Dialer));
        for client in &mut self.clients {
            if is_full || client.is_busy(self.at) {
                client.busy_at = self.at;
            }
        }
        let then = self.at.saturating_sub(SLACK);
        let is_there = |(conn, channel, tag)| {
            let is_idle = |client: &Client| client.is_open() && client.busy_at <= then;
            let client = self.client_of(conn);
            client.is_some_and(is_idle) && self.broker.unacked(conn, channel).contains(&tag)
        };
        let held = self.accounts.is_held((then, self.at), is_there);
        held.map_or(Ok(()), Err)
    }

    fn client_of(&self, conn: Conn) -> Option<&Client> {
        let mut peers = self.peers.values();
        let peer = peers.find(|peer| peer.conn == conn && peer.is_open())?;
        self.clients.iter().find(|of| Some(of.id) == peer.client)
    }

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
            let publishes = |client: &Client| !client.only_consumes && !self.plan.delays.is_empty();
            // Of one whose publishes are delayed the proxy reads no more.
            self.client_of(conn).is_some_and(|client| {
                client.is_open() && client.deaf_until <= then && !publishes(client)
            }) && !self.broker.is_blocked(conn)
                && self.broker.unacked(conn, channel).contains(&tag)
        };
        let tickets = self.settings[0].max_tickets;
        match self.accounts.stands_still(then, tickets, should_move) {
            Some(what) => Err(format!("a consumer stands still in an alarm: {what}")),
            None => Ok(()),
        }
    }
}
