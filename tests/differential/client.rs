//! One client connection: sends what it is told, records every frame that comes. A thread reads; whoever runs the script waits for what
//! has come by now.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::frame::Frame;
use super::methods::{Arg, Args, BODY, Method};
use super::names::Names;
use super::script::Call;
use super::value::{Bytes, Table, Value, put};

/// After which something counts as not coming.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY_FRAME: u8 = 3;
const HEARTBEAT: u8 = 8;

/// A connection.
pub(crate) struct Client {
    name: String,
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
}

struct Shared {
    names: Arc<Names>,
    socket: TcpStream,
    /// Held while a piece is written: the reader answers closes.
    writing: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
    /// Does the reader answer closes?
    automatic: bool,
}

#[derive(Default)]
struct State {
    frames: Vec<Received>,
    /// How often each came on a channel, and how often it was waited for.
    came: HashMap<(u16, String), usize>,
    awaited: HashMap<(u16, String), usize>,
    channels: HashMap<u16, Channel>,
    /// Contents of which something is missing.
    partial: HashMap<u16, (Frame, u64, Bytes)>,
    ended: bool,
    silent: bool,
    paused: bool,
    frame_max: usize,
    step: usize,
}

/// Something that was observed.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub channel: u16,
    /// The step that was the latest when it came.
    pub step: usize,
    pub frame: Frame,
}

/// Of a channel that was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Open,
    Closed,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Came,
    /// The channel or the connection is closed: it cannot come any more.
    Closed,
    Late,
}

// === impl Client ===

impl Client {
    /// Connects the socket, no more. `automatic`: closes of the server are answered.
    pub(crate) fn connect(
        name: &str,
        address: SocketAddr,
        names: &Arc<Names>,
        automatic: bool,
    ) -> io::Result<Client> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(DEADLINE))?;
        let state = State {
            frame_max: 131_072,
            ..State::default()
        };
        let shared = Arc::new(Shared {
            names: names.clone(),
            socket,
            writing: Mutex::default(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            automatic,
        });
        let reader = shared.clone();
        let reader = std::thread::spawn(move || reader.read_all());
        Ok(Client {
            name: name.to_owned(),
            shared,
            reader: Some(reader),
        })
    }

    /// The handshake with these fields instead of the usual ones, as far as the server takes part in it.
    pub(crate) fn log_in(&self, user: &str, vhost: &str, fields: &Args) {
        self.send(b"AMQP\0\0\x09\x01");
        if self.wait(0, &["connection.start"], 1, DEADLINE) != Wait::Came {
            return;
        }
        let with = |usual: Args| [fields.clone(), usual].concat();
        let text = |text: &str| Arg::Text(text.as_bytes().to_vec());
        let start_ok = with(vec![
            ("client-properties", Arg::Table(self.properties())),
            ("mechanism", text("PLAIN")),
            ("response", text(&format!("\0{user}\0{user}"))),
            ("locale", text("en_US")),
        ]);
        self.method(0, "connection.start-ok", start_ok);
        if self.wait(0, &["connection.tune"], 1, DEADLINE) != Wait::Came {
            return;
        }
        let tune = self
            .latest("connection.tune")
            .unwrap_or_else(|| Frame::new("", Args::new()));
        let tune_ok = with(vec![
            ("channel-max", Arg::Number(tune.number("channel-max"))),
            ("frame-max", Arg::Number(tune.number("frame-max"))),
        ]);
        if let Some((_, Arg::Number(frame_max @ 1..))) =
            tune_ok.iter().find(|(name, _)| *name == "frame-max")
        {
            self.state().frame_max = *frame_max as usize;
        }
        self.method(0, "connection.tune-ok", tune_ok);
        self.method(
            0,
            "connection.open",
            with(vec![("virtual-host", text(vhost))]),
        );
        self.wait(0, &["connection.open-ok"], 1, DEADLINE);
    }

    fn properties(&self) -> Table {
        let yes = |name: &str| (name.as_bytes().to_vec(), Value::Bool(true));
        let capabilities = [
            "publisher_confirms",
            "exchange_exchange_bindings",
            "basic.nack",
            "consumer_cancel_notify",
            "connection.blocked",
            "authentication_failure_close",
        ];
        let capabilities = Table {
            fields: capabilities.map(yes).to_vec(),
            rest: Bytes::new(),
        };
        let name = format!("{}{}", self.name, self.shared.names.suffix);
        let fields = vec![
            (b"connection_name".to_vec(), Value::Text(name.into_bytes())),
            (b"capabilities".to_vec(), Value::Table(capabilities)),
        ];
        Table {
            fields,
            rest: Bytes::new(),
        }
    }

    fn method(&self, channel: u16, name: &'static str, args: Args) {
        let method = Method::named(name).expect("in the table");
        self.call(&Call {
            channel,
            method,
            args,
            pipelined: true,
        });
    }

    /// Sends a method, and its content if it has one. With fresh names.
    pub(crate) fn call(&self, call: &Call) {
        let mut args = call.args.clone();
        for (_, arg) in &mut args {
            arg.for_each_text(false, &mut |text| self.shared.names.insert(text));
        }
        let mut out = frame(METHOD, call.channel, &call.method.encode(&args));
        if call.method.content {
            out.extend(frame(HEADER, call.channel, &Method::encode_header(&args)));
            let body = args
                .iter()
                .find(|(name, _)| *name == BODY)
                .map_or(&[][..], |(_, body)| body.text());
            let piece = self.state().frame_max.max(4096) - 8;
            body.chunks(piece)
                .for_each(|piece| out.extend(frame(BODY_FRAME, call.channel, piece)));
        }
        if call.method.name == "channel.open" {
            self.state().channels.insert(call.channel, Channel::Open);
        }
        self.send(&out);
    }

    /// A synchronous method and its reply.
    pub(crate) fn ask(&self, channel: u16, name: &'static str, args: Args) -> Option<Frame> {
        self.method(channel, name, args);
        let replies = Method::named(name).expect("in the table").replies();
        let came = self.wait(channel, &replies, 1, DEADLINE) == Wait::Came;
        let state = self.state();
        let mut frames = state.frames.iter().rev();
        let of = |received: &&Received| {
            received.channel == channel && replies.contains(&&*received.frame.name)
        };
        frames
            .find(of)
            .filter(|_| came)
            .map(|received| received.frame.clone())
    }

    pub(crate) fn send_frame(&self, channel: u16, kind: u8, payload: &[u8]) {
        self.send(&frame(kind, channel, payload));
    }

    /// Bytes as they are. That the other side is gone is seen by the reader.
    pub(crate) fn send(&self, bytes: &[u8]) {
        self.shared.send(bytes);
    }

    /// Until that many more of these came on the channel than were waited for.
    pub(crate) fn wait(
        &self,
        channel: u16,
        names: &[&str],
        count: usize,
        patience: Duration,
    ) -> Wait {
        let end = Instant::now() + patience;
        let mut state = self.state();
        loop {
            let here: usize = names
                .iter()
                .map(|name| state.unawaited(channel, name))
                .sum();
            if here >= count {
                state.take(channel, names, count);
                return Wait::Came;
            }
            let elsewhere =
                channel != 0 && state.came.contains_key(&(0, "connection.close".to_owned()));
            if state.ended || elsewhere || state.channels.get(&channel) == Some(&Channel::Closed) {
                return Wait::Closed;
            }
            let Some(patience) = end.checked_duration_since(Instant::now()) else {
                return Wait::Late;
            };
            let waited = self.shared.changed.wait_timeout(state, patience);
            state = waited.expect("no panic").0;
        }
    }

    pub(crate) fn channel(&self, channel: u16) -> Option<Channel> {
        self.state().channels.get(&channel).copied()
    }

    /// From here on, what comes belongs to that step.
    pub(crate) fn at_step(&self, step: usize) {
        self.state().step = step;
    }

    /// Lets the reader go on, or stops it after at most one more frame.
    pub(crate) fn read(&self, on: bool) {
        self.state().paused = !on;
        self.shared.changed.notify_all();
    }

    /// Until all that was sent on open channels is carried out, and what that brought is here. Leaves no trace in the record.
    pub(crate) fn rest(&self) {
        self.read(true);
        let mut channels: Vec<u16> = self
            .state()
            .channels
            .iter()
            .filter(|(_, is)| **is == Channel::Open)
            .map(|(of, _)| *of)
            .collect();
        channels.sort_unstable();
        for channel in channels.iter().copied() {
            self.method(channel, "channel.flow", vec![("active", Arg::Bit(true))]);
        }
        for channel in channels {
            if self.wait(channel, &["channel.flow-ok"], 1, DEADLINE) == Wait::Came {
                let frames = &mut self.state().frames;
                let at = frames.iter().rposition(|came| {
                    came.channel == channel && came.frame.name == "channel.flow-ok"
                });
                at.map(|at| frames.remove(at));
            }
        }
    }

    /// Closes it in order; what comes is not recorded any more.
    pub(crate) fn close(&self) {
        self.read(true);
        self.state().silent = true;
        if self.shared.automatic && !self.state().ended {
            self.method(
                0,
                "connection.close",
                vec![("reply-code", Arg::Number(200))],
            );
            self.wait(0, &["connection.close-ok"], 1, DEADLINE);
        }
        self.drop_socket();
    }

    pub(crate) fn drop_socket(&self) {
        let mut state = self.state();
        state.silent = true;
        state.paused = false;
        drop(state);
        self.shared.changed.notify_all();
        let _ = self.shared.socket.shutdown(Shutdown::Both);
    }

    /// What was recorded.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.state().frames.clone()
    }

    fn latest(&self, name: &str) -> Option<Frame> {
        let state = self.state();
        let mut frames = state.frames.iter().rev().map(|received| &received.frame);
        frames.find(|frame| frame.name == name).cloned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no panic")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.drop_socket();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// A frame's bytes.
fn frame(kind: u8, channel: u16, payload: &[u8]) -> Bytes {
    let mut out = vec![kind];
    put(&mut out, 2, u64::from(channel));
    put(&mut out, 4, payload.len() as u64);
    out.extend_from_slice(payload);
    out.push(0xce);
    out
}

// === impl Shared ===

impl Shared {
    fn send(&self, bytes: &[u8]) {
        let _writing = self.writing.lock().expect("no panic");
        let _ = (&self.socket).write_all(bytes);
    }

    fn read_all(&self) {
        while let Ok((kind, channel, payload)) = self.read_frame() {
            let paused = self
                .changed
                .wait_while(self.state.lock().expect("no panic"), |state| state.paused);
            drop(paused.expect("no panic"));
            self.answer(kind, channel, &payload);
            let mut state = self.state.lock().expect("no panic");
            let state = &mut *state;
            if let Some(frame) = state.complete(kind, channel, &payload) {
                state.came(channel, frame, &self.names);
            }
            self.changed.notify_all();
        }
        let mut state = self.state.lock().expect("no panic");
        state.ended = true;
        state.came(0, Frame::new("closed", Args::new()), &self.names);
        self.changed.notify_all();
    }

    fn read_frame(&self) -> io::Result<(u8, u16, Bytes)> {
        let mut head = [0; 7];
        (&self.socket).read_exact(&mut head)?;
        if head.starts_with(b"AMQP") {
            // The server names a version that it speaks.
            let mut last = [0];
            (&self.socket).read_exact(&mut last)?;
            return Ok((head[0], 0, [&head[..], &last].concat()));
        }
        let [kind, c1, c0, length @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes(length) as usize + 1];
        (&self.socket).read_exact(&mut payload)?;
        match payload.pop() {
            Some(0xce) => Ok((kind, u16::from_be_bytes([c1, c0]), payload)),
            _ => Ok((0, 0, payload)),
        }
    }

    /// Says close-ok before anybody learns of the close: what the script sends next comes behind it.
    fn answer(&self, kind: u8, channel: u16, payload: &[u8]) {
        if kind != METHOD || !self.automatic {
            return;
        }
        let reply = match payload {
            [0, 20, 0, 40, ..] => "channel.close-ok",
            [0, 10, 0, 50, ..] => "connection.close-ok",
            _ => return,
        };
        let method = Method::named(reply).expect("in the table");
        self.send(&frame(METHOD, channel, &method.encode(&Args::new())));
    }
}

// === impl State ===

impl State {
    /// The next frame: what it completes.
    fn complete(&mut self, kind: u8, channel: u16, payload: &[u8]) -> Option<Frame> {
        match kind {
            METHOD => match Method::decode(payload) {
                Some((method, args)) if method.content => {
                    let frame = Frame::new(&method.name, args);
                    self.partial
                        .insert(channel, (frame, u64::MAX, Bytes::new()));
                    None
                }
                Some((method, args)) => Some(Frame::new(&method.name, args)),
                None => Some(Frame::raw("undecodable-method", payload)),
            },
            HEADER | BODY_FRAME => {
                let Some((frame, length, body)) = self.partial.get_mut(&channel) else {
                    return Some(Frame::raw("frame-out-of-place", payload));
                };
                if kind == BODY_FRAME {
                    body.extend_from_slice(payload);
                } else if let Some((size, properties)) = Method::decode_header(payload) {
                    *length = size;
                    frame.args.extend(properties);
                } else {
                    return Some(Frame::raw("undecodable-header", payload));
                }
                if (body.len() as u64) < *length {
                    return None;
                }
                let (mut frame, _, body) = self.partial.remove(&channel)?;
                frame.args.push((BODY, Arg::Text(body)));
                Some(frame)
            }
            HEARTBEAT => Some(Frame::new("heartbeat", Args::new())),
            b'A' => Some(Frame::raw("protocol-header", payload)),
            _ => Some(Frame::raw("unknown-frame", payload)),
        }
    }

    fn came(&mut self, channel: u16, mut frame: Frame, names: &Names) {
        names.remove_from(&mut frame);
        if matches!(&*frame.name, "channel.close" | "channel.close-ok") {
            self.channels.insert(channel, Channel::Closed);
        }
        *self.came.entry((channel, frame.name.clone())).or_default() += 1;
        if !self.silent {
            self.frames.push(Received {
                channel,
                step: self.step,
                frame,
            });
        }
    }

    fn unawaited(&self, channel: u16, name: &str) -> usize {
        let of = (channel, name.to_owned());
        let count = |counts: &HashMap<(u16, String), usize>| counts.get(&of).copied().unwrap_or(0);
        count(&self.came).saturating_sub(count(&self.awaited))
    }

    fn take(&mut self, channel: u16, names: &[&str], mut count: usize) {
        for name in names {
            let taken = count.min(self.unawaited(channel, name));
            *self
                .awaited
                .entry((channel, (*name).to_owned()))
                .or_default() += taken;
            count -= taken;
        }
    }
}
