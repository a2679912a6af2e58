//! Connections as TCP makes them: two ways, each with little room, which may be slow, stand still, swallow everything, or end.

use std::collections::VecDeque;

/// Microseconds of the virtual clock.
pub(crate) type Micros = u64;

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TcpId(pub usize);

/// Who opened it, and who accepted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// All connections of a world.
#[derive(Debug, Default)]
pub(crate) struct Net(Vec<Tcp>);

#[derive(Debug)]
struct Tcp {
    /// What each end has written: of the dialer, of the acceptor.
    ways: [Way; 2],
    /// Nothing passes until then, in either direction; what was written waits.
    still_until: Micros,
    /// What is written disappears, and nobody is told.
    hole: bool,
    reset: bool,
}

#[derive(Debug)]
struct Way {
    bytes: VecDeque<u8>,
    room: usize,
    fin: bool,
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
    /// `room`: octets that may be under way, in each direction.
    pub(crate) fn open(&mut self, room: usize) -> TcpId {
        let way = || Way {
            bytes: VecDeque::new(),
            room,
            fin: false,
            deaf: false,
        };
        self.0.push(Tcp {
            ways: [way(), way()],
            still_until: 0,
            hole: false,
            reset: false,
        });
        TcpId(self.0.len() - 1)
    }

    /// How many octets of `bytes` were taken; `None`: the connection is gone.
    pub(crate) fn write(&mut self, tcp: TcpId, from: End, bytes: &[u8]) -> Option<usize> {
        let tcp = &mut self.0[tcp.0];
        let hole = tcp.hole;
        let way = &mut tcp.ways[from as usize];
        if tcp.reset || way.fin || way.deaf {
            tcp.reset |= way.deaf && !bytes.is_empty();
            return (bytes.is_empty()).then_some(0);
        }
        let taken = bytes.len().min(way.room.saturating_sub(way.bytes.len()));
        if !hole {
            way.bytes.extend(&bytes[..taken]);
        }
        Some(taken)
    }

    /// At most so many octets of what the other end wrote.
    pub(crate) fn read(&mut self, tcp: TcpId, at: End, most: usize, now: Micros) -> Found {
        if !self.readable(tcp, at, now) {
            return Found::Nothing;
        }
        let tcp = &mut self.0[tcp.0];
        let way = &mut tcp.ways[at.other() as usize];
        match way.bytes.len() {
            _ if tcp.reset => Found::Reset,
            0 => Found::Fin,
            there => Found::Bytes(way.bytes.drain(..there.min(most)).collect()),
        }
    }

    /// Whether a read would find something.
    pub(crate) fn readable(&self, tcp: TcpId, at: End, now: Micros) -> bool {
        let tcp = &self.0[tcp.0];
        let way = &tcp.ways[at.other() as usize];
        tcp.reset || tcp.still_until <= now && !tcp.hole && (way.fin || !way.bytes.is_empty())
    }

    /// Whether a write would be taken, or fail.
    pub(crate) fn writable(&self, tcp: TcpId, from: End) -> bool {
        let tcp = &self.0[tcp.0];
        let way = &tcp.ways[from as usize];
        tcp.reset || way.deaf || way.bytes.len() < way.room
    }

    /// An end has said all; it may still read.
    pub(crate) fn finish(&mut self, tcp: TcpId, from: End) {
        self.0[tcp.0].ways[from as usize].fin = true;
    }

    /// An end closes its socket: what it wrote still arrives, unless it left something unread.
    pub(crate) fn close(&mut self, tcp: TcpId, from: End) {
        let tcp = &mut self.0[tcp.0];
        let unread = &mut tcp.ways[from.other() as usize];
        unread.deaf = true;
        let left = !unread.bytes.is_empty();
        tcp.ways[from as usize].fin = true;
        tcp.reset |= left;
    }

    /// Both ends find the connection gone.
    pub(crate) fn cut(&mut self, tcp: TcpId) {
        self.0[tcp.0].reset = true;
    }

    /// Neither end hears of the other again.
    pub(crate) fn swallow(&mut self, tcp: TcpId) {
        self.0[tcp.0].hole = true;
    }

    /// Nothing passes until then.
    pub(crate) fn stand_still(&mut self, tcp: TcpId, until: Micros) {
        self.0[tcp.0].still_until = until;
    }

    /// When something that stands still moves again.
    pub(crate) fn next_move(&self, now: Micros) -> Option<Micros> {
        let moves = self.0.iter().map(|tcp| tcp.still_until);
        moves.filter(|until| *until > now).min()
    }
}
