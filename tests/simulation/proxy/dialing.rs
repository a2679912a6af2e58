//! Connections that links ask the world for.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use dlx_proxy::net::drive::Connector;

use super::super::net::{End, Net, Stream, TcpId};
use super::{Proxy, Which};

/// All that were asked for, and have not come.
pub(super) type Dials = Arc<Mutex<Vec<(Which, Arc<Mutex<Dial>>)>>>;

/// One of them.
#[derive(Default)]
pub(super) struct Dial {
    pub answer: Option<io::Result<Stream>>,
    pub waker: Option<Waker>,
}

struct Dialing(Arc<Mutex<Dial>>);

/// Asks the world for a connection.
pub(super) fn connector(dials: &Dials, which: Which) -> Connector<Stream> {
    let dials = dials.clone();
    Box::new(move || {
        let dial = Arc::<Mutex<Dial>>::default();
        let mut dials = dials.lock().expect("no panic");
        dials.push((which, dial.clone()));
        Box::pin(Dialing(dial))
    })
}

// === impl Proxy ===

impl Proxy {
    /// Links that have asked for a connection.
    pub(crate) fn dials(&self) -> Vec<Which> {
        let dials = self.dials.lock().expect("no panic");
        dials.iter().map(|(which, _)| *which).collect()
    }

    /// The connection of a link has come, or could not be had.
    pub(crate) fn connected(&mut self, which: Which, tcp: Option<TcpId>, net: &Net) {
        let mut dials = self.dials.lock().expect("no panic");
        let Some(at) = dials.iter().position(|(of, _)| *of == which) else {
            return;
        };
        let (_, dial) = dials.remove(at);
        let mut dial = dial.lock().expect("no panic");
        let stream = tcp.map(|tcp| Stream::new(net, tcp, End::Dialer));
        dial.answer = Some(stream.ok_or(io::ErrorKind::ConnectionRefused.into()));
        if let Some(waker) = dial.waker.take() {
            waker.wake();
        }
    }
}

// === impl Dialing ===

impl Future for Dialing {
    type Output = io::Result<Stream>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let mut dial = self.0.lock().expect("no panic");
        match dial.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                dial.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
