//! One client connection: sends what it is told, records every frame that comes. A thread reads; whoever runs the script waits for what
//! has come by now.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::frame::Frame;
use super::methods::{Arg, Args, Method};
use super::names::Names;
use super::reader::{Channel, Received, Shared, State};
use super::script::Call;
use super::value::{Bytes, Table, Value};
use super::wire;

/// For so long nothing comes: then what is waited for counts as not coming.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A connection.
pub(crate) struct Client {
    name: String,
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
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
        let piece = self.state().frame_max.max(4096) - 8;
        let out = wire::method(call.channel, call.method, &args, piece);
        if call.method.name == "channel.open" {
            self.state().channels.insert(call.channel, Channel::Open);
        }
        self.shared.send_on(call.channel, &out);
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
        self.send(&wire::frame(kind, channel, payload));
    }

    /// Bytes as they are. That the other side is gone is seen by the reader.
    pub(crate) fn send(&self, bytes: &[u8]) {
        self.shared.send(bytes);
    }

    /// Keeps back what is sent from here on; or sends that, in one piece.
    pub(crate) fn hold(&self, on: bool) {
        let mut held = self.shared.writing.lock().expect("no panic");
        match on {
            true => drop(held.get_or_insert_default()),
            false => drop((&self.shared.socket).write_all(&held.take().unwrap_or_default())),
        }
    }

    /// Until that many more of these came on the channel than were waited for. As long as anything comes it is not late: of a thousand answers
    /// each takes its time on a machine that is busy.
    pub(crate) fn wait(
        &self,
        channel: u16,
        names: &[&str],
        count: usize,
        patience: Duration,
    ) -> Wait {
        let mut end = Instant::now() + patience;
        let mut state = self.state();
        let mut progress = state.progress;
        loop {
            if state.progress != progress {
                progress = state.progress;
                end = Instant::now() + patience;
            }
            let here: usize = names
                .iter()
                .map(|name| state.unawaited(channel, name))
                .sum();
            if here >= count {
                state.take(channel, names, count);
                return Wait::Came;
            }
            let closed = channel != 0 && state.closed()
                || state.channels.get(&channel) == Some(&Channel::Closed);
            if state.ended || self.shared.automatic && closed {
                return Wait::Closed;
            }
            let Some(patience) = end.checked_duration_since(Instant::now()) else {
                return Wait::Late;
            };
            let waited = self.shared.changed.wait_timeout(state, patience);
            state = waited.expect("no panic").0;
        }
    }

    /// Are channels opened, and closes answered, without the script's saying so?
    pub(crate) fn is_automatic(&self) -> bool {
        self.shared.automatic
    }

    pub(crate) fn channel(&self, channel: u16) -> Option<Channel> {
        self.state().channels.get(&channel).copied()
    }

    /// In the order of their numbers.
    pub(crate) fn open_channels(&self) -> Vec<u16> {
        let state = self.state();
        let open = state
            .channels
            .iter()
            .filter(|(_, is)| **is == Channel::Open);
        let mut channels: Vec<u16> = open.map(|(of, _)| *of).collect();
        channels.sort_unstable();
        channels
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
        let channels = self.open_channels();
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

    /// Cancels its consumers: what the close of one channel returns would go to those of the next, now and then. What comes is not
    /// recorded any more.
    pub(crate) fn cancel_all(&self) {
        self.read(true);
        self.state().silent = true;
        for came in self.received() {
            let consumer = came.frame.arg("consumer-tag").cloned();
            let open = self.channel(came.channel) == Some(Channel::Open);
            if let ("basic.consume-ok", Some(tag), true) = (&*came.frame.name, consumer, open) {
                self.ask(came.channel, "basic.cancel", vec![("consumer-tag", tag)]);
            }
        }
    }

    pub(crate) fn close_channel(&self, channel: u16) {
        let ok = vec![("reply-code", Arg::Number(200))];
        self.ask(channel, "channel.close", ok);
    }

    /// Closes it in order; what comes is not recorded any more.
    pub(crate) fn close(&self) {
        self.read(true);
        self.state().silent = true;
        let over = self.state().ended || self.state().closed();
        if self.shared.automatic && !over {
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

    pub(crate) fn latest(&self, name: &str) -> Option<Frame> {
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
