//! The connections of a world: who opens them, what a broker reads and writes of them, and how they end.

use std::collections::BTreeMap;

use dlx_proxy::registry::policy::Mode;

use super::super::accounts::Whose;
use super::super::client::Client;
use super::super::decoder::Decoder;
use super::super::model::Conn;
use super::super::net::{End, Found, TcpId};
use super::super::plan::own_queue;
use super::super::proxy::{Proxy, Which};
use super::{HEARTBEAT, Peer, Phase, WALL, World, gist, gist_line};

impl World {
    /// A connection of that proxy to the broker, if it lets us.
    pub(super) fn dial(&mut self, whose: Whose, proxy: usize) -> Option<TcpId> {
        if !self.troubles.reachable(self.at) {
            return None;
        }
        let room = [200, 5_000, 100_000][self.rng.usize(..3)];
        let tcp = self.net.open(room, End::Dialer);
        let conn = self.broker.connect();
        self.accounts.belongs(conn, whose, proxy, self.at);
        self.alterations.belongs(conn, proxy);
        let client = match whose {
            Whose::Client(client) => Some(client),
            Whose::Publisher
            | Whose::Intake
            | Whose::Recorder
            | Whose::Walk(_)
            | Whose::Alteration => None,
        };
        let peer = Peer {
            conn,
            rest: Vec::new(),
            tap: Decoder::default(),
            heard: Decoder::behind_header(),
            sent: BTreeMap::new(),
            client,
            closed: false,
        };
        self.peers.insert(tcp, peer);
        Some(tcp)
    }

    pub(super) fn connect_link(&mut self, at: usize, which: Which) {
        let whose = match which {
            Which::Publisher | Which::Careful(_) => Whose::Publisher,
            Which::Recorder => Whose::Recorder,
            Which::Walk(number) => Whose::Walk(number),
            Which::Alteration(_) => Whose::Alteration,
            Which::Intake | Which::Session(_) => Whose::Intake,
        };
        let away = self.troubles.is_away(which, self.at);
        let tcp = if away { None } else { self.dial(whose, at) };
        if let Some(proxy) = &mut self.proxies[at] {
            proxy.connected(which, tcp, &self.net);
        }
    }

    pub(super) fn keep_clients(&mut self) {
        self.look_for_crashes();
        self.clients.retain(|client| !client.is_gone());
        while self.clients.len() < self.wanted {
            let listens = |at: &usize| self.proxies[*at].as_ref().is_some_and(Proxy::listens);
            let up: Vec<usize> = (0..self.proxies.len())
                .filter(|at| listens(at) && !self.is_ending(*at))
                .filter(|at| self.alterations.is_ready(*at))
                .collect();
            let Some(&at) = self.rng.choice(&up) else {
                return;
            };
            let id = self.next_client;
            let Some(broker) = self.dial(Whose::Client(id), at) else {
                return;
            };
            self.next_client += 1;
            let reads = self.proxies[at]
                .as_ref()
                .is_some_and(Proxy::has_read_record);
            if !reads {
                self.accounts.does_without_record(at);
            }
            self.through.insert(id, at);
            self.behind.insert(id, self.peers[&broker].conn);
            let room = [200, 5_000, 100_000][self.rng.usize(..3)];
            let tcp = self.net.open(room, End::Acceptor);
            if let Some(proxy) = &mut self.proxies[at] {
                proxy.accept(tcp, broker, &self.net);
            }
            let mut client = Client::connect(id, tcp, &self.plan);
            if let Some(own) = &self.plan.own {
                let kept = self.settings[0].mode == Mode::RejectsOnly;
                self.accounts.has_own(own_queue(id).into(), own, kept);
            }
            if self.is_stranger() {
                client.becomes_stranger(self.unknown.strangers_user());
                self.accounts.becomes_stranger(self.behind[&id]);
            }
            client.release = self.releases.usize(..4);
            client.winding_up = self.phase != Phase::Load;
            client.only_consumes = !self.clients.is_empty() && self.rng.u8(..3) == 0;
            let others = !self.clients.is_empty() && !client.only_consumes;
            client.only_publishes = others && self.alterations.has_publishers();
            self.clients.push(client);
        }
    }

    pub(super) fn broker_reads(&mut self, tcp: TcpId, most: usize) {
        let now = self.millis();
        let mut heard = Vec::new();
        let Some(peer) = self.peers.get_mut(&tcp) else {
            return;
        };
        match self.net.read(tcp, End::Acceptor, most, self.at) {
            Found::Bytes(bytes) => {
                if self.traced {
                    heard = peer.heard.feed(&bytes).unwrap_or_default();
                }
                peer.rest.extend(bytes);
            }
            Found::Nothing => {}
            Found::Fin | Found::Reset => {
                // What it has not read is lost, as its process ends with the socket.
                self.broker.hang_up(peer.conn, now);
                self.net.close(tcp, End::Acceptor);
                return self.forget(tcp);
            }
        }
        let conn = peer.conn;
        let taken = self.broker.read(conn, &peer.rest, now);
        peer.rest.drain(..taken);
        for (channel, frame) in heard {
            self.note(|| format!("    {conn:?} {channel} > {}", gist_line(&frame)));
        }
    }

    pub(super) fn broker_writes(&mut self, tcp: TcpId, most: usize) -> Result<(), String> {
        let Some(peer) = self.peers.get_mut(&tcp) else {
            return Ok(());
        };
        let output = self.broker.output(peer.conn);
        let bytes: Vec<u8> = output.iter().take(most).copied().collect();
        let Some(taken) = self.net.write(tcp, End::Acceptor, &bytes) else {
            self.broker.hang_up(peer.conn, WALL + self.at / 1000);
            self.forget(tcp);
            return Ok(());
        };
        output.drain(..taken);
        for (channel, frame) in peer.tap.feed(&bytes[..taken])? {
            if frame.name == "queue.declare-ok" {
                let messages = frame.number("message-count");
                self.accounts.counted_by_walk(peer.conn, messages);
            }
            if peer.client.is_some() {
                peer.sent
                    .entry(channel)
                    .or_default()
                    .push_back(gist(&frame));
            }
        }
        Ok(())
    }

    /// The broker's end of a connection is no more.
    pub(in super::super) fn forget(&mut self, tcp: TcpId) {
        if let Some(peer) = self.peers.get_mut(&tcp) {
            peer.closed = true;
        }
    }

    pub(super) fn heartbeats(&mut self) {
        if self.at < self.heartbeat_at {
            return;
        }
        self.heartbeat_at = self.at + HEARTBEAT;
        for client in &mut self.clients {
            client.heartbeat();
        }
    }

    // --- any of them

    /// An operator closes one; or a link's is closed as if something that it sent had crashed.
    pub(in super::super) fn close_a_connection(&mut self) {
        let conns: Vec<(TcpId, Conn)> = self.open_peers().collect();
        let Some((tcp, conn)) = self.rng.choice(&conns).copied() else {
            return;
        };
        let is_link = self.peers[&tcp].client.is_none();
        // By a clone: the worlds of seeds that are known stay as they are.
        let (code, text) = match is_link && self.rng.clone().bool() {
            true => (541, "it crashed"),
            false => (320, "Closed via management plugin"),
        };
        self.broker.close_connection_as(conn, code, text);
    }

    pub(in super::super) fn open_peers(&self) -> impl Iterator<Item = (TcpId, Conn)> + '_ {
        self.peers
            .iter()
            .filter(|(_, peer)| peer.is_open())
            .map(|(tcp, peer)| (*tcp, peer.conn))
    }

    pub(in super::super) fn any_tcp(&mut self) -> Option<TcpId> {
        let mut tcps: Vec<TcpId> = self.open_peers().map(|(tcp, _)| tcp).collect();
        tcps.extend(self.clients.iter().map(|client| client.tcp));
        self.rng.choice(&tcps).copied()
    }

    pub(in super::super) fn any_link(&mut self) -> Option<(TcpId, Conn)> {
        let links = self.peers.iter();
        let links = links.filter(|(_, peer)| peer.is_open() && peer.client.is_none());
        let links: Vec<(TcpId, Conn)> = links.map(|(tcp, peer)| (*tcp, peer.conn)).collect();
        self.rng.choice(&links).copied()
    }
}
