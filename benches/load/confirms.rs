//! A publisher's side of confirms: which publications are still open.

use std::collections::VecDeque;

use anyhow::bail;
use dlx_proxy::amqp::method::Settle;

use crate::client::{Connection, Event};

/// Which publications have not been confirmed. Confirms may come out of order and for several at once.
#[derive(Default)]
pub(crate) struct Unconfirmed {
    first: u64,
    done: VecDeque<bool>,
}

// === impl Unconfirmed ===

impl Unconfirmed {
    /// One more was published.
    pub(crate) fn published(&mut self) {
        self.done.push_back(false);
    }

    /// A confirm came.
    pub(crate) fn confirmed(&mut self, settle: Settle) {
        // Tags begin with 1.
        let index = settle.delivery_tag.0.saturating_sub(self.first + 1) as usize;
        let from = if settle.multiple { 0 } else { index };
        while self.done.len() <= index {
            self.published();
        }
        for done in self.done.iter_mut().take(index + 1).skip(from) {
            *done = true;
        }
        while self.done.front() == Some(&true) {
            self.done.pop_front();
            self.first += 1;
        }
    }

    /// How many of the first ones are all confirmed.
    pub(crate) fn confirmed_in_order(&self) -> u64 {
        self.first
    }

    /// How many are between the oldest that is not confirmed and the newest.
    pub(crate) fn len(&self) -> usize {
        self.done.len()
    }

    /// Waits for a confirm, and takes all that came with it.
    pub(crate) fn wait(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        loop {
            match connection.event()? {
                Event::Confirmed(settle) => self.confirmed(settle),
                Event::Message(..) => bail!("a publisher got a delivery"),
            }
            if !connection.has_frame() {
                return Ok(());
            }
        }
    }
}
