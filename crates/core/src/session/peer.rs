//! What a session learns of its two peers by watching the handshake; nothing of it is changed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::amqp::frame::{self, Head, Kind};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::amqp::method::{MethodId, Open, Start, StartOk, Tune};
use crate::amqp::table::Table;
use crate::amqp::version::Version;
use crate::dead_letter::Dialect;
use crate::machine::ClientConnection;
use crate::registry::wording::Wording;

/// Before negotiation; generous, because the broker enforces its own limit.
const FRAME_MAX_BEFORE_TUNE: usize = 128 * 1024;

/// Bytes of a `connection_name`, for log lines.
const LONGEST_NAME: usize = 255;

#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    /// Of the broker; none: before 3.10, or an unknown version, so that everything passes.
    pub dialect: Option<Dialect>,
    pub version: Option<Version>,
    /// How the broker writes refusals.
    pub wording: Option<Wording>,
    pub name: Option<Bytes>,
    /// Known when the mechanism shows it.
    pub user: Option<ShortStr>,
    pub vhost: Vhost,
    /// Client details for logs and stamps. Complete after open-ok.
    pub connection: Arc<ClientConnection>,
    pub tune: Option<Tune>,
}

// === impl Peer ===

impl Peer {
    /// Whether this `basic.qos` is for a channel, which the broker gives to each of its consumers.
    pub(super) fn multiplies_prefetch(&self, payload: &[u8]) -> bool {
        let is_new = self
            .version
            .is_some_and(|version| version >= Version(4, 3, 0));
        // Behind class, method and prefetch-size.
        is_new
            && matches!(payload.get(8..), Some([high, low, bits]) if bits & 1 != 0 && (*high, *low) != (0, 0))
    }

    pub(super) fn watch(&mut self, id: MethodId, payload: &[u8]) {
        match id {
            MethodId::CONNECTION_START => {
                let start = Start::parse(payload).ok();
                let version = start.and_then(|start| text(start.server_properties, b"version"));
                self.version = version.and_then(Version::parse);
                self.dialect = version.and_then(Dialect::of_version);
                self.wording = version.map(Wording::of_version);
            }
            MethodId::CONNECTION_START_OK => {
                let Ok(ok) = StartOk::parse(payload) else {
                    return;
                };
                self.name = text(ok.client_properties, b"connection_name")
                    .map(|name| name.get(..LONGEST_NAME).unwrap_or(name))
                    .map(Bytes::copy_from_slice);
                let user = match ok.mechanism {
                    b"PLAIN" => ok.response.split(|byte| *byte == 0).nth(1),
                    b"AMQPLAIN" => text(ok.response, b"LOGIN"),
                    _ => None,
                };
                self.user = user.and_then(ShortStr::copy);
            }
            MethodId::CONNECTION_TUNE_OK => self.tune = Tune::parse(payload).ok(),
            MethodId::CONNECTION_OPEN => {
                let open = Open::parse(payload).ok();
                let vhost = open.and_then(|open| ShortStr::copy(open.vhost));
                self.vhost = vhost.unwrap_or_default();
            }
            _ => {}
        }
    }

    pub(super) fn comes_from(&mut self, host: ShortStr) {
        self.connection = Arc::new(ClientConnection {
            host,
            ..Default::default()
        });
    }

    /// The connection is open: the client's details are complete.
    pub(super) fn connected(&mut self) {
        let name = self.name.as_deref().and_then(ShortStr::copy);
        let before = ClientConnection::clone(&self.connection);
        self.connection = Arc::new(ClientConnection {
            name,
            user: self.user.clone(),
            ..before
        });
    }

    /// Largest frame of the client in bytes, with head and end. RabbitMQ counts only the payload
    /// (`FRAME_SIZE_FUDGE`).
    pub(super) fn frame_max(&self) -> usize {
        match self.tune {
            None => FRAME_MAX_BEFORE_TUNE,
            Some(Tune { frame_max: 0, .. }) => usize::MAX,
            Some(tune) => tune.frame_max as usize + frame::HEAD + 1,
        }
    }

    /// Whether a method or header exceeds the client's limit, complete or not.
    pub(super) fn is_too_large(&self, head: Head) -> bool {
        matches!(head.kind, Kind::Method | Kind::Header) && head.whole() > self.frame_max()
    }

    pub(super) fn channel_max(&self) -> usize {
        match self.tune {
            None | Some(Tune { channel_max: 0, .. }) => 65_535,
            Some(tune) => usize::from(tune.channel_max),
        }
    }

    /// Interval of the proxy's heartbeats for a paused client: half of the negotiated one.
    pub(super) fn heartbeat(&self) -> Option<Duration> {
        let seconds = self.tune?.heartbeat;
        (seconds > 0).then(|| Duration::from_millis(u64::from(seconds) * 500))
    }
}

fn text<'a>(table: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    Table(table).get(name).ok()??.as_longstr()
}
