//! Connections as TCP makes them: two ways, each with little room, which may be slow, stand still, swallow everything, or end.
//!
//! What is written towards a proxy is under way until the world delivers it, in pieces. The other ends are asked by the world itself.

mod stream;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

pub(crate) use stream::Stream;

/// Microseconds of the virtual clock.
pub(crate) type Micros = u64;

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TcpId(pub usize);

/// Who opened it, and who accepted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Dialer,
    Acceptor,
}

/// What a read finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Bytes(Vec<u8>),
    /// The peer has ended its stream.
    Fin,
    /// The connection is gone.
    Reset,
    Nothing,
}

/// All connections of a world. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Net(Arc<Mutex<All>>);

#[derive(Debug, Default)]
struct All {
    tcps: Vec<Tcp>,
    /// Ways on which something is under way, by who wrote it.
    under_way: BTreeSet<(TcpId, End)>,
    /// Bytes that one read or write of a proxy takes, at most.
    most: usize,
}

#[derive(Debug)]
struct Tcp {
    /// What each end has written: of the dialer, of the acceptor.
    ways: [Way; 2],
    /// The end that a proxy has: it is woken when it can go on.
    proxy: End,
    /// Waits for something to read, for room to write.
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Nothing passes until then, in either direction; what was written waits.
    still_until: Micros,
    /// What is written disappears, and nobody is told.
    hole: bool,
    reset: bool,
}

#[derive(Debug)]
struct Way {
    bytes: VecDeque<u8>,
    /// So many of them can be read.
    arrived: usize,
    room: usize,
    fin: bool,
    fin_arrived: bool,
    /// The end that reads has closed its socket.
    deaf: bool,
}

impl End {
    pub(crate) fn other(self) -> End {
        match self {
            End::Dialer => End::Acceptor,
            End::Acceptor => End::Dialer,
        }
    }
}

// === impl Net ===

impl Net {
    /// `room`: bytes that may be under way, in each direction; `proxy`: the end that a proxy has.
    pub(crate) fn open(&self, room: usize, proxy: End) -> TcpId {
        let way = || Way {
            bytes: VecDeque::new(),
            arrived: 0,
            room,
            fin: false,
            fin_arrived: false,
            deaf: false,
        };
        let mut all = self.lock();
        all.tcps.push(Tcp {
            ways: [way(), way()],
            proxy,
            reader: None,
            writer: None,
            still_until: 0,
            hole: false,
            reset: false,
        });
        TcpId(all.tcps.len() - 1)
    }

    /// How many bytes of `bytes` were taken; `None`: the connection is gone.
    pub(crate) fn write(&self, tcp: TcpId, from: End, bytes: &[u8]) -> Option<usize> {
        self.lock().write(tcp, from, bytes)
    }

    /// At most so many bytes of what the other end wrote.
    pub(crate) fn read(&self, tcp: TcpId, at: End, most: usize, now: Micros) -> Found {
        match self.readable(tcp, at, now) {
            true => self.lock().read(tcp, at, most),
            false => Found::Nothing,
        }
    }

    /// Whether a read would find something; for an end that is no proxy's.
    pub(crate) fn readable(&self, tcp: TcpId, at: End, now: Micros) -> bool {
        let all = self.lock();
        let (of, passes) = (&all.tcps[tcp.0], |of: &Tcp| {
            of.still_until <= now && !of.hole
        });
        of.reset || passes(of) && of.readable(at)
    }

    /// The same for a proxy's: what has arrived, has.
    pub(crate) fn has_arrived(&self, tcp: TcpId, at: End) -> bool {
        self.lock().tcps[tcp.0].readable(at)
    }

    /// Whether a write would be taken, or fail.
    pub(crate) fn writable(&self, tcp: TcpId, from: End) -> bool {
        self.lock().tcps[tcp.0].writable(from)
    }

    /// An end has said all; it may still read.
    pub(crate) fn finish(&self, tcp: TcpId, from: End) {
        self.lock().finish(tcp, from);
    }

    /// An end closes its socket: what it wrote still arrives, unless it left something unread.
    pub(crate) fn close(&self, tcp: TcpId, from: End) {
        let mut all = self.lock();
        let of = &mut all.tcps[tcp.0];
        let unread = &mut of.ways[from.other() as usize];
        unread.deaf = true;
        of.reset |= !unread.bytes.is_empty();
        of.wake();
        all.finish(tcp, from);
    }

    /// Both ends find the connection gone.
    pub(crate) fn cut(&self, tcp: TcpId) {
        let mut all = self.lock();
        all.tcps[tcp.0].reset = true;
        all.tcps[tcp.0].wake();
    }

    pub(crate) fn is_cut(&self, tcp: TcpId) -> bool {
        self.lock().tcps[tcp.0].reset
    }

    /// Neither end hears of the other again.
    pub(crate) fn swallow(&self, tcp: TcpId) {
        self.lock().tcps[tcp.0].hole = true;
    }

    /// Nothing passes until then.
    pub(crate) fn stand_still(&self, tcp: TcpId, until: Micros) {
        self.lock().tcps[tcp.0].still_until = until;
    }

    /// When something that stands still moves again.
    pub(crate) fn next_move(&self, now: Micros) -> Option<Micros> {
        let all = self.lock();
        let moves = all.tcps.iter().map(|tcp| tcp.still_until);
        moves.filter(|until| *until > now).min()
    }

    /// Ways towards a proxy on which something could move on.
    pub(crate) fn deliverable(&self, now: Micros) -> Vec<(TcpId, End)> {
        let all = self.lock();
        let moves = |(tcp, _): &&(TcpId, End)| {
            let of = &all.tcps[tcp.0];
            of.still_until <= now && !of.hole && !of.reset
        };
        all.under_way.iter().filter(moves).copied().collect()
    }

    /// So many bytes more arrive at the proxy's end.
    pub(crate) fn deliver(&self, (tcp, from): (TcpId, End), most: usize) {
        let mut all = self.lock();
        let of = &mut all.tcps[tcp.0];
        let way = &mut of.ways[from as usize];
        way.arrived = way.bytes.len().min(way.arrived + most);
        if way.arrived == way.bytes.len() {
            way.fin_arrived = way.fin;
            all.under_way.remove(&(tcp, from));
        }
        all.tcps[tcp.0].wake();
    }

    /// From now on a read or write of a proxy takes so many bytes, at most.
    pub(crate) fn set_most(&self, most: usize) {
        self.lock().most = most;
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().expect("no panic")
    }
}

// === impl All ===

impl All {
    fn write(&mut self, tcp: TcpId, from: End, bytes: &[u8]) -> Option<usize> {
        let of = &mut self.tcps[tcp.0];
        let (hole, slow) = (of.hole, of.proxy == from.other());
        let way = &mut of.ways[from as usize];
        if of.reset || way.fin || way.deaf {
            of.reset |= way.deaf && !bytes.is_empty();
            of.wake();
            return (bytes.is_empty()).then_some(0);
        }
        let taken = bytes.len().min(way.room.saturating_sub(way.bytes.len()));
        if !hole {
            way.bytes.extend(&bytes[..taken]);
        }
        if !slow {
            way.arrived = way.bytes.len();
        } else if way.arrived < way.bytes.len() {
            self.under_way.insert((tcp, from));
        }
        Some(taken)
    }

    fn read(&mut self, tcp: TcpId, at: End, most: usize) -> Found {
        let of = &mut self.tcps[tcp.0];
        let way = &mut of.ways[at.other() as usize];
        let found = match way.arrived {
            _ if of.reset => Found::Reset,
            0 if way.fin_arrived => Found::Fin,
            0 => Found::Nothing,
            there => {
                let taken = there.min(most);
                way.arrived -= taken;
                Found::Bytes(way.bytes.drain(..taken).collect())
            }
        };
        of.wake();
        found
    }

    fn finish(&mut self, tcp: TcpId, from: End) {
        let of = &mut self.tcps[tcp.0];
        let slow = of.proxy == from.other();
        let way = &mut of.ways[from as usize];
        way.fin = true;
        if slow {
            self.under_way.insert((tcp, from));
        } else {
            way.fin_arrived = true;
        }
    }
}

// === impl Tcp ===

impl Tcp {
    fn readable(&self, at: End) -> bool {
        let way = &self.ways[at.other() as usize];
        self.reset || way.arrived > 0 || way.fin_arrived
    }

    fn writable(&self, from: End) -> bool {
        let way = &self.ways[from as usize];
        self.reset || way.deaf || way.fin || way.bytes.len() < way.room
    }

    /// Wakes the proxy's task if what it waits for is there: not before, and not for anything else.
    fn wake(&mut self) {
        if self.readable(self.proxy)
            && let Some(waker) = self.reader.take()
        {
            waker.wake();
        }
        if self.writable(self.proxy)
            && let Some(waker) = self.writer.take()
        {
            waker.wake();
        }
    }
}
