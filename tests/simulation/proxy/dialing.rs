//! Connections that links ask the world for.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use dlx_proxy::net::drive::Connector;

use super::super::net::Stream;
use super::Which;

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
