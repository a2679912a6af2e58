//! Bytes → frames → methods with their contents; and what is wrong with a frame.

use crate::codec::methods::{Arg, Method};
use crate::codec::value::{Table, Value, number};
use crate::codec::wire::{BODY_FRAME, HEADER, HEARTBEAT, METHOD};

use super::broker::{Broker, Conn};
use super::call::Call;
use super::connection::State;
use super::refusal::Refusal;

/// Octets of a frame without its payload; a client may be wrong by as many.
const AROUND: u32 = 8;

impl Broker {
    pub(super) fn take_bytes(&mut self, conn: Conn, bytes: &[u8]) -> usize {
        let now = self.now;
        let mut taken = 0;
        while taken < bytes.len() {
            let connection = self.connection(conn);
            if connection.ended {
                return bytes.len();
            }
            if connection.blocked {
                break;
            }
            connection.heard = now;
            let wanted = wanted(connection.state, &connection.input);
            let piece = &bytes[taken..(taken + wanted).min(bytes.len())];
            connection.input.extend_from_slice(piece);
            taken += piece.len();
            if piece.len() == wanted {
                self.complete(conn);
            }
        }
        taken
    }

    fn complete(&mut self, conn: Conn) {
        let connection = self.connection(conn);
        let (state, frame_max) = (connection.state, connection.frame_max);
        if state == State::Header {
            let header = std::mem::take(&mut connection.input);
            return self.negotiate(conn, &header);
        }
        let mut head = &connection.input[..];
        let kind = head[0];
        head = &head[1..];
        let channel = number(&mut head, 2).unwrap_or(0) as u16;
        let size = number(&mut head, 4).unwrap_or(0) as u32;
        if connection.input.len() == 7 {
            if frame_max != 0 && size > frame_max {
                let error = format!("{{frame_too_large,{size},{}}}", frame_max - AROUND);
                self.broken_frame(conn, kind, &[], &error);
                self.connection(conn).ended = true;
            }
            return;
        }
        let mut frame = std::mem::take(&mut connection.input);
        let end = frame.pop();
        let payload = &frame[7..];
        match end {
            Some(0xce) => self.frame(conn, kind, channel, payload),
            end => {
                let error = format!("{{invalid_frame_end_marker,{}}}", end.unwrap_or(0));
                self.broken_frame(conn, kind, payload, &error);
                self.connection(conn).ended = true;
            }
        }
    }

    fn frame(&mut self, conn: Conn, kind: u8, channel: u16, payload: &[u8]) {
        let state = self.connection(conn).state;
        let known = match kind {
            METHOD => payload.len() >= 4,
            HEADER => payload.len() >= 12,
            BODY_FRAME => true,
            kind => kind == HEARTBEAT && payload.is_empty(),
        };
        let stopping = state == State::Closed;
        match (channel, kind) {
            (0, METHOD) if known => self.on_channel_0(conn, payload),
            _ if stopping => {}
            (0, HEARTBEAT) if known => {}
            (0, _) if known => self.unexpected(conn, kind, payload),
            (0, _) => self.broken_frame(conn, kind, payload, "unknown_frame"),
            _ if channel != 0 && state != State::Running => self.unexpected(conn, kind, payload),
            _ if !known => self.broken_frame(conn, kind, payload, "unknown_frame"),
            (_, HEARTBEAT) => self.unexpected(conn, kind, payload),
            _ => self.on_channel(conn, channel, kind, payload),
        }
    }

    fn on_channel_0(&mut self, conn: Conn, payload: &[u8]) {
        let call = match decode(payload) {
            Ok(call) => call,
            // Who reads it is the connection itself, and survives that if it is open.
            Err(Broken::Unreadable | Broken::Fields(_)) => {
                return self.refuse_on_0(conn, &internal_error(), None);
            }
            Err(broken) => return self.broken_method(conn, broken),
        };
        if let Err(refusal) = self.connection_method(conn, &call) {
            self.refuse_on_0(conn, &refusal, Some(&call));
        }
    }

    fn refuse_on_0(&mut self, conn: Conn, refusal: &Refusal, call: Option<&Call>) {
        let state = self.connection(conn).state;
        match (state, refusal.code) {
            (State::Closed, _) => {}
            // Of what goes wrong inside it, nobody hears before the connection is open.
            (State::Opening, 541) => self.connection(conn).ended = true,
            (State::Running | State::Opening, _) => self.close_connection(conn, refusal, call),
            // What comes before that it does not trust.
            _ => self.connection(conn).ended = true,
        }
    }

    pub(super) fn broken_method(&mut self, conn: Conn, broken: Broken) {
        match broken {
            Broken::Unreadable => {
                self.end_connection(conn);
                self.connection(conn).ended = true;
            }
            Broken::Fields(refusal) => self.refuse_on_0(conn, &refusal, None),
            Broken::Wrong(refusal, call) => self.refuse_on_0(conn, &refusal, call.as_ref()),
        }
    }

    /// `error` as Erlang writes it.
    fn broken_frame(&mut self, conn: Conn, kind: u8, payload: &[u8], error: &str) {
        let text = format!("type {kind}, {}: {error}", snippet(payload));
        let refusal = Refusal {
            code: 501,
            text: text.into_bytes(),
        };
        self.refuse_on_0(conn, &refusal, None);
    }

    pub(super) fn unexpected(&mut self, conn: Conn, kind: u8, payload: &[u8]) {
        let refusal = Refusal {
            code: 505,
            text: format!("type {kind}, {}", snippet(payload)).into_bytes(),
        };
        self.refuse_on_0(conn, &refusal, None);
    }
}

/// How many octets more until something can be decided.
fn wanted(state: State, input: &[u8]) -> usize {
    if state == State::Header {
        return 8 - input.len();
    }
    let size = input.get(3..7).and_then(|mut size| number(&mut size, 4));
    size.map_or(7 - input.len().min(7), |size| {
        7 + size as usize + 1 - input.len()
    })
}

/// A method that cannot be carried out, whatever the state.
pub(super) enum Broken {
    /// Of no known number, with a table that is broken: the broker has no words for it, and hangs up.
    Unreadable,
    /// More or fewer octets than its fields have.
    Fields(Refusal),
    Wrong(Refusal, Option<Call>),
}

pub(super) fn decode(payload: &[u8]) -> Result<Call, Broken> {
    let Some((method, args)) = Method::decode(payload) else {
        if Method::of(payload).is_none() {
            return Err(Broken::Unreadable);
        }
        let octets: Vec<String> = payload[4..].iter().map(u8::to_string).collect();
        let text = format!("cannot decode <<{}>>", octets.join(",")).into_bytes();
        return Err(Broken::Fields(Refusal { code: 501, text }));
    };
    let call = Call {
        method,
        args,
        content: None,
    };
    if call.args.iter().any(|(_, arg)| is_broken(arg)) {
        return Err(Broken::Unreadable);
    }
    if !utf8(&call) {
        let text = b"Malformed UTF-8 in shortstr".to_vec();
        return Err(Broken::Wrong(Refusal { code: 501, text }, Some(call)));
    }
    Ok(call)
}

/// Names must be.
fn utf8(call: &Call) -> bool {
    let is_name = |name: &str| matches!(name, "queue" | "exchange" | "virtual-host");
    call.method.name == "basic.publish"
        || call.args.iter().all(|(name, arg)| match arg {
            Arg::Text(text) if is_name(name) => std::str::from_utf8(text).is_ok(),
            _ => true,
        })
}

/// A table that Erlang cannot read: cut, of unknown types, with numbers that are none.
pub(super) fn is_broken(arg: &Arg) -> bool {
    match arg {
        Arg::Table(table) => broken_table(table),
        _ => false,
    }
}

fn broken_table(table: &Table) -> bool {
    !table.rest.is_empty() || table.fields.iter().any(|(_, value)| broken_value(value))
}

fn broken_value(value: &Value) -> bool {
    match value {
        Value::Float(bits) => !f32::from_bits(*bits).is_finite(),
        Value::Double(bits) => !f64::from_bits(*bits).is_finite(),
        Value::Array(array) => !array.rest.is_empty() || array.items.iter().any(broken_value),
        Value::Table(table) => broken_table(table),
        _ => false,
    }
}

pub(super) fn internal_error() -> Refusal {
    Refusal {
        code: 541,
        text: Vec::new(),
    }
}

/// `all octets = <<"abc">>`
fn snippet(payload: &[u8]) -> String {
    match payload.len() {
        ..=16 => format!("all octets = {}", binary(payload)),
        _ => format!("first 16 octets = {}", binary(&payload[..16])),
    }
}

/// As Erlang writes it.
pub(super) fn binary(octets: &[u8]) -> String {
    let seen = |octet: &u8| (0x20..0x7f).contains(octet) || b"\n\t\r".contains(octet);
    if !octets.is_empty() && octets.iter().all(seen) {
        return format!("<<{:?}>>", String::from_utf8_lossy(octets));
    }
    let numbers: Vec<String> = octets.iter().map(u8::to_string).collect();
    format!("<<{}>>", numbers.join(","))
}
