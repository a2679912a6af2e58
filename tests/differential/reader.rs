//! The reading side of a connection: frames → what is recorded, on a thread of its own.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};

use super::frame::Frame;
use super::methods::{Arg, Args, BODY, Method};
use super::names::Names;
use super::value::Bytes;
use super::wire::{BODY_FRAME, HEADER, HEARTBEAT, METHOD, frame};

/// Not frames of AMQP 0-9-1: no type of its frames has these numbers.
const PROTOCOL_HEADER: u8 = b'A';
const FRAME_1_0: u8 = b'1';

/// What the thread that reads and those that send and wait have in common.
pub(crate) struct Shared {
    pub names: Arc<Names>,
    pub socket: TcpStream,
    /// Held while a piece is written: the reader answers closes. What is kept back, if anything shall be.
    pub writing: Mutex<Option<Bytes>>,
    pub state: Mutex<State>,
    pub changed: Condvar,
    /// Does the reader answer closes?
    pub automatic: bool,
}

/// What has come so far.
#[derive(Default)]
pub(crate) struct State {
    pub frames: Vec<Received>,
    /// How often each came on a channel, and how often it was waited for.
    pub came: HashMap<(u16, String), usize>,
    pub awaited: HashMap<(u16, String), usize>,
    pub channels: HashMap<u16, Channel>,
    /// Publishes of a channel that the server has confirmed, either way.
    pub confirmed: HashMap<u16, BTreeSet<u64>>,
    /// Contents of which something is missing.
    pub partial: HashMap<u16, Partial>,
    /// Frames that came, but for heartbeats.
    pub progress: usize,
    pub ended: bool,
    pub silent: bool,
    pub paused: bool,
    pub frame_max: usize,
    pub step: usize,
}

/// A content of which something is missing.
pub(crate) struct Partial {
    frame: Frame,
    length: u64,
    body: Bytes,
    /// Bytes of each frame of the body.
    pieces: Vec<String>,
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

// === impl Shared ===

impl Shared {
    pub(crate) fn send(&self, bytes: &[u8]) {
        self.write(&mut self.writing.lock().expect("no panic"), bytes);
    }

    /// On a channel that the client takes for open; if it was closed meanwhile, nothing.
    pub(crate) fn send_on(&self, channel: u16, bytes: &[u8]) {
        let mut held = self.writing.lock().expect("no panic");
        let state = self.state.lock().expect("no panic");
        let closed = state.channels.get(&channel) == Some(&Channel::Closed);
        drop(state);
        if !(closed && self.automatic) {
            self.write(&mut held, bytes);
        }
    }

    fn write(&self, held: &mut Option<Bytes>, bytes: &[u8]) {
        match held {
            Some(held) => held.extend_from_slice(bytes),
            None => drop((&self.socket).write_all(bytes)),
        }
    }

    pub(crate) fn read_all(&self) {
        let mut is_1_0 = false;
        while let Ok((kind, channel, payload)) = self.read_frame(&mut is_1_0) {
            let paused = self
                .changed
                .wait_while(self.state.lock().expect("no panic"), |state| state.paused);
            drop(paused.expect("no panic"));
            // Nobody else writes between the answer to a close and the note of it.
            let answer = self.answer(kind, channel, &payload);
            let _writing = answer.map(|answer| {
                let mut held = self.writing.lock().expect("no panic");
                self.write(&mut held, &answer);
                held
            });
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

    /// `is_1_0`: the server has said that it speaks AMQP 1.0 from here on.
    fn read_frame(&self, is_1_0: &mut bool) -> io::Result<(u8, u16, Bytes)> {
        let mut head = [0; 4];
        (&self.socket).read_exact(&mut head)?;
        if head == *b"AMQP" {
            let mut version = [0; 4];
            (&self.socket).read_exact(&mut version)?;
            *is_1_0 = version[1] == 1;
            return Ok((PROTOCOL_HEADER, 0, [head, version].concat()));
        }
        if *is_1_0 {
            let mut rest = vec![0; (u32::from_be_bytes(head) as usize).saturating_sub(4)];
            (&self.socket).read_exact(&mut rest)?;
            return Ok((FRAME_1_0, 0, rest));
        }
        let mut more = [0; 3];
        (&self.socket).read_exact(&mut more)?;
        let [kind, c1, c0, length] = head;
        let length = u32::from_be_bytes([length, more[0], more[1], more[2]]);
        let mut payload = vec![0; length as usize + 1];
        (&self.socket).read_exact(&mut payload)?;
        match payload.pop() {
            Some(0xce) => Ok((kind, u16::from_be_bytes([c1, c0]), payload)),
            _ => Ok((0, 0, payload)),
        }
    }

    /// What is said to a close, before anybody learns of it: what the script sends next comes behind it.
    fn answer(&self, kind: u8, channel: u16, payload: &[u8]) -> Option<Bytes> {
        if kind != METHOD || !self.automatic {
            return None;
        }
        let reply = match payload {
            [0, 20, 0, 40, ..] => "channel.close-ok",
            [0, 10, 0, 50, ..] => "connection.close-ok",
            _ => return None,
        };
        let method = Method::named(reply).expect("in the table");
        Some(frame(METHOD, channel, &method.encode(&Args::new())))
    }
}

// === impl State ===

impl State {
    /// Has either side closed the connection? The server leaves the socket open until the client has closed it.
    pub(crate) fn closed(&self) -> bool {
        let came = |name: &str| self.came.contains_key(&(0, name.to_owned()));
        came("connection.close") || came("connection.close-ok")
    }

    /// The next frame: what it completes.
    fn complete(&mut self, kind: u8, channel: u16, payload: &[u8]) -> Option<Frame> {
        match kind {
            METHOD => match Method::decode(payload) {
                Some((method, args)) if method.content => {
                    let partial = Partial {
                        frame: Frame::new(&method.name, args),
                        length: u64::MAX,
                        body: Bytes::new(),
                        pieces: Vec::new(),
                    };
                    self.partial.insert(channel, partial);
                    None
                }
                Some((method, args)) => Some(Frame::new(&method.name, args)),
                None => Some(Frame::raw("undecodable-method", payload)),
            },
            HEADER | BODY_FRAME => {
                let Some(partial) = self.partial.get_mut(&channel) else {
                    return Some(Frame::raw("frame-out-of-place", payload));
                };
                if kind == BODY_FRAME {
                    partial.body.extend_from_slice(payload);
                    partial.pieces.push(payload.len().to_string());
                } else if let Some((size, properties)) = Method::decode_header(payload) {
                    partial.length = size;
                    partial.frame.args.extend(properties);
                } else {
                    return Some(Frame::raw("undecodable-header", payload));
                }
                if (partial.body.len() as u64) < partial.length {
                    return None;
                }
                let mut whole = self.partial.remove(&channel)?;
                if whole.pieces.len() > 1 {
                    let pieces = whole.pieces.join(" ").into_bytes();
                    whole.frame.args.push(("body-frames", Arg::Text(pieces)));
                }
                whole.frame.args.push((BODY, Arg::Text(whole.body)));
                Some(whole.frame)
            }
            HEARTBEAT => Some(Frame::new("heartbeat", Args::new())),
            PROTOCOL_HEADER => Some(Frame::raw("protocol-header", payload)),
            FRAME_1_0 => Some(Frame::raw("amqp-1.0-frame", payload)),
            _ => Some(Frame::raw("unknown-frame", payload)),
        }
    }

    fn came(&mut self, channel: u16, mut frame: Frame, names: &Names) {
        names.remove_from(&mut frame);
        if matches!(&*frame.name, "channel.close" | "channel.close-ok") {
            self.channels.insert(channel, Channel::Closed);
            self.confirmed.remove(&channel);
        }
        if let Some(tags) = frame.confirms() {
            let confirmed = self.confirmed.entry(channel).or_default();
            let new = tags.filter(|tag| confirmed.insert(*tag)).count();
            *self
                .came
                .entry((channel, "confirm".to_owned()))
                .or_default() += new;
        }
        *self.came.entry((channel, frame.name.clone())).or_default() += 1;
        self.progress += usize::from(frame.name != "heartbeat");
        if !self.silent {
            self.frames.push(Received {
                channel,
                step: self.step,
                frame,
            });
        }
    }

    pub(crate) fn unawaited(&self, channel: u16, name: &str) -> usize {
        let of = (channel, name.to_owned());
        let count = |counts: &HashMap<(u16, String), usize>| counts.get(&of).copied().unwrap_or(0);
        count(&self.came).saturating_sub(count(&self.awaited))
    }

    pub(crate) fn take(&mut self, channel: u16, names: &[&str], mut count: usize) {
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
