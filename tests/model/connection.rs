//! A connection: the handshake, heartbeats, and how it ends, from either side.

use std::collections::{BTreeMap, VecDeque};

use crate::codec::methods::{Arg, Args, Method};
use crate::codec::value::{Bytes, Table, Value};
use crate::codec::wire::{self, HEARTBEAT, METHOD};

use super::broker::{Broker, Conn, Millis, User};
use super::call::{Call, find, string, text};
use super::channel::Channel;
use super::facts::Fact;
use super::refusal::{Answer, Refusal, refuse, show};
use super::sasl;

/// The least that a client may agree to, and what counts until something is agreed.
const FRAME_MIN: u32 = 8192;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for the eight octets of the protocol.
    Header,
    Starting,
    /// The login failed in some way that a client may hear of.
    Tuning,
    Opening,
    Running,
    /// One side has closed it; what comes is not looked at, but closes.
    Closed,
}

pub(super) struct Connection {
    pub state: State,
    /// The broker has closed its end of the socket.
    pub ended: bool,
    /// Of a frame that is not complete.
    pub input: Bytes,
    pub output: VecDeque<u8>,
    pub channels: BTreeMap<u16, Channel>,
    pub user: String,
    /// As the client calls it.
    pub name: Bytes,
    pub capabilities: Table,
    pub frame_max: u32,
    pub channel_max: u16,
    /// Milliseconds; 0: none.
    pub heartbeat: Millis,
    pub heard: Millis,
    pub said: Millis,
    /// Not read, since it published during an alarm.
    pub blocked: bool,
}

impl Connection {
    pub(super) fn new(now: Millis) -> Connection {
        Connection {
            state: State::Header,
            ended: false,
            input: Bytes::new(),
            output: VecDeque::new(),
            channels: BTreeMap::new(),
            user: String::new(),
            name: Bytes::new(),
            capabilities: Table::default(),
            frame_max: FRAME_MIN,
            channel_max: 0,
            heartbeat: 0,
            heard: now,
            said: now,
            blocked: false,
        }
    }

    pub(super) fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) {
        self.output.extend(wire::frame(kind, channel, payload));
    }

    pub(super) fn knows(&self, capability: &str) -> bool {
        self.capabilities.get(capability) == Some(&Value::Bool(true))
    }
}

impl Broker {
    pub(super) fn send(&mut self, conn: Conn, channel: u16, name: &str, args: Args) {
        let method = Method::named(name).expect("in the table");
        let payload = method.encode(&args);
        let now = self.now;
        let connection = self.connection(conn);
        connection.said = now;
        connection.frame(METHOD, channel, &payload);
    }

    pub(super) fn user(&self, conn: Conn) -> &User {
        let name = &self.connections[conn.0 as usize].user;
        let mut users = self.options.users.iter();
        users.find(|user| user.name == *name).expect("logged in")
    }

    /// The eight octets.
    pub(super) fn negotiate(&mut self, conn: Conn, header: &[u8]) {
        let other = |version: &[u8]| [b"AMQP", version].concat();
        let answer = match header {
            b"AMQP\0\0\x09\x01" | b"AMQP\x01\x01\0\x09" => {
                return self.start(conn);
            }
            [b'A', b'M', b'Q', b'P', 0, 0, 9..=255, _] => other(&[0, 0, 9, 1]),
            _ => other(&[3, 1, 0, 0]),
        };
        let connection = self.connection(conn);
        connection.output.extend(answer);
        connection.ended = true;
    }

    fn start(&mut self, conn: Conn) {
        self.connection(conn).state = State::Starting;
        let usual = || {
            let properties = self.options.server_properties();
            vec![
                ("version-minor", Arg::Number(9)),
                ("server-properties", Arg::Table(properties)),
                ("mechanisms", text(b"PLAIN AMQPLAIN ANONYMOUS")),
                ("locales", text(b"en_US")),
            ]
        };
        let args = self.options.start.clone().unwrap_or_else(usual);
        self.send(conn, 0, "connection.start", args);
    }

    /// A method on channel 0.
    pub(super) fn connection_method(&mut self, conn: Conn, call: &Call) -> Answer<()> {
        let state = self.connection(conn).state;
        match (&*call.method.name, state) {
            ("connection.close", State::Closed) => {
                self.send(conn, 0, "connection.close-ok", Args::new());
            }
            ("connection.close-ok", State::Closed) => self.connection(conn).ended = true,
            (_, State::Closed) => {}
            ("connection.start-ok", State::Starting) => return self.log_in(conn, call),
            ("connection.tune-ok", State::Tuning) => return self.tune(conn, call),
            ("connection.open", State::Opening) => return self.open(conn, call),
            ("connection.update-secret", State::Running) => {
                self.send(conn, 0, "connection.update-secret-ok", Args::new());
            }
            ("connection.close", State::Running) => {
                self.end_connection(conn);
                self.send(conn, 0, "connection.close-ok", Args::new());
            }
            (_, State::Opening | State::Running) => {
                return refuse(504, "unexpected method in connection state running").map_err(
                    |refusal: Refusal| match state {
                        State::Running => refusal,
                        _ => Refusal {
                            text: b"unexpected method in connection state opening".to_vec(),
                            ..refusal
                        },
                    },
                );
            }
            _ => self.connection(conn).ended = true,
        }
        Ok(())
    }

    fn log_in(&mut self, conn: Conn, call: &Call) -> Answer<()> {
        let properties = match find(&call.args, "client-properties") {
            Some(Arg::Table(properties)) => properties.clone(),
            _ => Table::default(),
        };
        let connection = self.connection(conn);
        connection.name = string(&properties, "connection_name").unwrap_or_default();
        if let Some(Value::Table(capabilities)) = properties.get("capabilities") {
            connection.capabilities = capabilities.clone();
        }
        let mechanism = call.text("mechanism");
        let response = call.text("response");
        let Some((name, password)) = sasl::credentials(&mechanism, &response) else {
            self.connection(conn).ended = true;
            return Ok(());
        };
        let fits = |user: &&User| {
            user.name.as_bytes() == name
                && password
                    .as_ref()
                    .is_none_or(|given| user.password.as_bytes() == &given[..])
        };
        let Some(user) = self.options.users.iter().find(fits).cloned() else {
            if self.connection(conn).knows("authentication_failure_close") {
                let text = format!(
                    "Login was refused using authentication mechanism {}. For details see the broker logfile.",
                    show(&mechanism)
                );
                let refusal = Refusal {
                    code: 403,
                    text: text.into_bytes(),
                };
                self.close_connection(conn, &refusal, None);
            } else {
                self.connection(conn).ended = true;
            }
            return Ok(());
        };
        let (channel_max, frame_max) = (self.options.channel_max, self.options.frame_max);
        let heartbeat = self.options.heartbeat;
        let connection = self.connection(conn);
        connection.user = user.name;
        connection.state = State::Tuning;
        let args = vec![
            ("channel-max", Arg::Number(channel_max.into())),
            ("frame-max", Arg::Number(frame_max.into())),
            ("heartbeat", Arg::Number(heartbeat.into())),
        ];
        self.send(conn, 0, "connection.tune", args);
        Ok(())
    }

    fn tune(&mut self, conn: Conn, call: &Call) -> Answer<()> {
        let frame_max = call.number("frame-max") as u32;
        let channel_max = call.number("channel-max") as u16;
        agreed("frame_max", FRAME_MIN, frame_max, self.options.frame_max)?;
        agreed(
            "channel_max",
            1,
            channel_max.into(),
            self.options.channel_max.into(),
        )?;
        let now = self.now;
        let connection = self.connection(conn);
        connection.frame_max = frame_max;
        connection.channel_max = channel_max;
        connection.heartbeat = call.number("heartbeat") * 1000;
        (connection.heard, connection.said) = (now, now);
        connection.state = State::Opening;
        Ok(())
    }

    fn open(&mut self, conn: Conn, call: &Call) -> Answer<()> {
        let vhost = call.text("virtual-host");
        if vhost != self.options.vhost.as_bytes() {
            return refuse(530, format!("vhost {} not found", show(&vhost)));
        }
        self.connection(conn).state = State::Running;
        self.send(conn, 0, "connection.open-ok", Args::new());
        Ok(())
    }

    /// The broker closes it because of this request.
    pub(super) fn close_connection(
        &mut self,
        conn: Conn,
        refusal: &Refusal,
        because: Option<&Call>,
    ) {
        self.end_connection(conn);
        let class = because.map_or(0, |call| call.method.class);
        let id = because.map_or(0, |call| call.method.id);
        let args = vec![
            ("reply-code", Arg::Number(refusal.code.into())),
            ("reply-text", Arg::Text(refusal.reply_text())),
            ("class-id", Arg::Number(class.into())),
            ("method-id", Arg::Number(id.into())),
        ];
        self.send(conn, 0, "connection.close", args);
        self.facts.push(Fact::ConnectionClosed {
            conn,
            code: refusal.code,
            text: refusal.reply_text(),
        });
    }

    /// Its channels end, and what is exclusive to it.
    pub(super) fn end_connection(&mut self, conn: Conn) {
        let channels: Vec<u16> = self.connection(conn).channels.keys().copied().collect();
        for channel in channels {
            self.end_channel(conn, channel);
        }
        let connection = self.connection(conn);
        connection.state = State::Closed;
        connection.blocked = false;
        self.delete_exclusive(conn);
    }

    // === heartbeats

    pub(super) fn heartbeat_deadline(&self) -> Option<Millis> {
        let beating = |connection: &&Connection| connection.beats();
        let dues = self.connections.iter().filter(beating);
        dues.map(|of| (of.said + of.heartbeat / 2).min(of.heard_until()))
            .min()
    }

    /// Sends those that are due, and hangs up where none came for two intervals.
    pub(super) fn beat(&mut self) {
        let now = self.now;
        for at in 0..self.connections.len() {
            let conn = Conn(at as u32);
            let connection = self.connection(conn);
            if !connection.beats() {
                continue;
            }
            if now >= connection.said + connection.heartbeat / 2 {
                connection.said = now;
                connection.frame(HEARTBEAT, 0, &[]);
            }
            if now >= connection.heard_until() {
                self.end_connection(conn);
                self.connection(conn).ended = true;
            }
        }
    }
}

impl Connection {
    fn beats(&self) -> bool {
        self.heartbeat > 0 && !self.ended && matches!(self.state, State::Opening | State::Running)
    }

    /// A blocked connection is not read, so its silence says nothing.
    fn heard_until(&self) -> Millis {
        match self.blocked {
            true => Millis::MAX,
            false => self.heard + 2 * self.heartbeat,
        }
    }
}

fn agreed(name: &str, least: u32, wanted: u32, most: u32) -> Answer<()> {
    let wrong = |how: &str, bound: &str| {
        let none = if wanted == 0 { " (no limit)" } else { "" };
        refuse(
            530,
            format!(
                "negotiated {name} = {wanted}{none} is {how} than the {bound} allowed value ({most})"
            ),
        )
    };
    if wanted != 0 && wanted < least {
        return wrong("lower", "minimum");
    }
    if most != 0 && (wanted == 0 || wanted > most) {
        return wrong("higher", "maximum");
    }
    Ok(())
}
