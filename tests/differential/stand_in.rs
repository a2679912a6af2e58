//! The model of `../model` behind a socket. Here time is the real one, and whatever the model could do later it does at once.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use regex::bytes::Regex;

use super::methods::Args;
use super::model::{Broker, Conn, Options, Rights, User};
use super::names::Names;
use super::script::Operation;
use super::value::{Bytes, Fallible};

/// How often it is looked whether something has expired.
const TICK: Duration = Duration::from_millis(2);

/// A model that listens.
pub(crate) struct StandIn {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
}

struct State {
    broker: Broker,
    /// By the number of their connection; nothing: it is over.
    peers: Vec<Option<Peer>>,
    over: bool,
}

/// What goes out is written by a thread of its own, since a client may not read.
struct Peer {
    out: Sender<Bytes>,
}

impl StandIn {
    /// `properties`: what the real one says of itself.
    pub(crate) fn start(vhost: &str, version: &str, start: Option<Args>) -> Fallible<StandIn> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let options = Options {
            vhost: vhost.to_owned(),
            version: version.to_owned(),
            start,
            ..Options::default()
        };
        let state = State {
            broker: Broker::new(options),
            peers: Vec::new(),
            over: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || accepting.accept(&listener));
        let ticking = shared.clone();
        std::thread::spawn(move || ticking.tick());
        Ok(StandIn { address, shared })
    }

    /// A step that is an operator's.
    pub(crate) fn carry_out(&self, operation: &Operation, names: &Names) -> Fallible<()> {
        let name = names.inserted(&operation.name);
        let option = |of: &str| {
            let found = operation.options.iter().find(|(name, _)| name == of);
            found.map(|(_, arg)| names.inserted(&String::from_utf8_lossy(arg.text())))
        };
        let rights = |of: &str| rights(&option(of).unwrap_or_default());
        let mut state = self.shared.state();
        match &*operation.verb {
            "user" => {
                let user = User {
                    password: option("password").unwrap_or(name.clone()),
                    configure: rights("configure")?,
                    write: rights("write")?,
                    read: rights("read")?,
                    impersonator: option("tags").is_some_and(|tags| tags.contains("impersonator")),
                    name,
                };
                state.broker.set_user(user);
            }
            "delete user" => state.broker.remove_user(&name),
            "close" => {
                let conn = state
                    .broker
                    .named(&format!("{}{}", operation.name, names.suffix));
                let conn = conn.ok_or("no connection has that name")?;
                let text = "Closed via management plugin";
                state.broker.close_connection_as(conn, 320, text);
            }
            verb => return Err(format!("the model cannot {verb}")),
        }
        state.flush();
        Ok(())
    }
}

/// From a pattern as brokers take it; of what our library cannot do, `^(?!name)`.
fn rights(pattern: &str) -> Fallible<Rights> {
    let compiled = |pattern: &str| Regex::new(pattern).map_err(|error| error.to_string());
    let but = pattern
        .strip_prefix("^(?!")
        .and_then(|rest| rest.strip_suffix(')'));
    match (pattern, but) {
        ("", _) => Ok(Rights::None),
        (_, Some(but)) => Ok(Rights::AllBut(compiled(&format!("^{but}"))?)),
        _ => compiled(pattern).map(Rights::Pattern),
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.over = true;
        state.peers.clear();
        // Wakes the one who accepts.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the model does not panic")
    }

    fn accept(self: &Arc<Shared>, listener: &TcpListener) {
        for socket in listener.incoming().flatten() {
            let mut state = self.state();
            if state.over {
                return;
            }
            let _ = socket.set_nodelay(true);
            let conn = state.broker.connect();
            let (out, pending) = channel();
            let (Ok(reading), Ok(writing)) = (socket.try_clone(), socket.try_clone()) else {
                continue;
            };
            state.peers.push(Some(Peer { out }));
            let shared = self.clone();
            std::thread::spawn(move || shared.read(conn, reading));
            std::thread::spawn(move || write(&pending, writing));
        }
    }

    fn read(&self, conn: Conn, mut socket: TcpStream) {
        let mut buffer = vec![0; 65536];
        loop {
            let read = socket.read(&mut buffer).unwrap_or(0);
            let mut state = self.state();
            if state.over {
                return;
            }
            if read == 0 {
                state.broker.hang_up(conn, now());
                if let Some(peer) = state.peers.get_mut(conn.0 as usize) {
                    *peer = None;
                }
                return state.flush();
            }
            state.broker.read(conn, &buffer[..read], now());
            state.flush();
        }
    }

    fn tick(&self) {
        loop {
            std::thread::sleep(TICK);
            let mut state = self.state();
            if state.over {
                return;
            }
            let now = now();
            if state.broker.deadline().is_some_and(|due| due <= now) {
                state.broker.tick(now);
                state.flush();
            }
        }
    }
}

impl State {
    /// All that can be done is done, all that can be sent is sent.
    fn flush(&mut self) {
        self.broker.run_all(now());
        for (at, slot) in self.peers.iter_mut().enumerate() {
            let conn = Conn(at as u32);
            let Some(peer) = slot else { continue };
            let out: VecDeque<u8> = std::mem::take(self.broker.output(conn));
            if !out.is_empty() {
                let _ = peer.out.send(out.into());
            }
            if self.broker.is_closed(conn) {
                // The writer ends it when all is written.
                *slot = None;
            }
        }
    }
}

fn write(pending: &Receiver<Bytes>, mut socket: TcpStream) {
    for bytes in pending {
        if socket.write_all(&bytes).is_err() {
            return;
        }
    }
    let _ = socket.shutdown(Shutdown::Both);
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}
