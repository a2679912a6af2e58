//! How a client closes a channel or its connection, or makes the broker close one.

use fastrand::Rng;

use super::super::codec::methods::{Arg, Args, BODY};
use super::super::plan::text;
use super::{Client, Said, Stage};

impl Client {
    pub(super) fn close_channel(&mut self, id: u16) {
        self.request(id, "channel.close", &Args::new(), "channel.close-ok");
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.closing = true;
        }
    }

    /// Something that closes the channel.
    pub(super) fn wrong(&mut self, id: u16, rng: &mut Rng) {
        self.said.push(Said::Wrong(id));
        match rng.u8(..3) {
            0 => {
                let args = vec![("queue", text("missing")), ("passive", Arg::Bit(true))];
                self.request(id, "queue.declare", &args, "queue.declare-ok");
            }
            1 => self.send(
                id,
                "basic.ack",
                &vec![("delivery-tag", Arg::Number(1_000_000))],
            ),
            _ => {
                let args = vec![
                    ("exchange", text("missing")),
                    (BODY, Arg::Text(b"00000000".to_vec())),
                ];
                self.send(id, "basic.publish", &args);
                // It counts, as each does.
                let channel = self.channels.entry(id).or_default();
                channel.published += 1;
            }
        }
    }

    /// In order.
    pub(crate) fn close(&mut self) {
        if self.stage == Stage::Open {
            self.send(
                0,
                "connection.close",
                &vec![("reply-code", Arg::Number(200))],
            );
            self.stage = Stage::Closing;
        }
    }
}
