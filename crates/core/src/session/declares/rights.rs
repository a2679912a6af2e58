//! Asks the broker whether a client may publish, without an effect: the publish as the client wrote it, without its body, in a transaction that
//! is rolled back (S14.4). So the broker checks all that it would check, also topic permissions and a user-id, and a refusal has its own words.

use crate::amqp::content::Content;
use crate::amqp::ids::ChannelId;
use crate::amqp::method::{Close, MethodId, Publish};
use crate::amqp::reply;
use crate::session::delays::Right;
use crate::session::line::Line;

use super::{Asked, Declares};

/// A publish of the client's channel, which waits.
#[derive(Debug)]
pub(super) struct Asks {
    pub(super) channel: ChannelId,
    right: Right,
}

impl Declares {
    /// `None`: the broker cannot be asked. False: the client waits for the answer.
    pub(in crate::session) fn may_publish(
        &mut self,
        channel: ChannelId,
        publish: &Publish<'_>,
        (properties, right): (&[u8], Right),
        line: &mut Line<'_, '_>,
    ) -> Option<bool> {
        if self.learned().rights.get(&right, line.now()).is_some() {
            return Some(true);
        }
        if self.waits_for_another(line) {
            return Some(false);
        }
        self.take_number(line).ok()?;
        let (probe, mut frames) = (self.probe, Vec::new());
        let content = Content {
            properties: properties.to_vec().into(),
            ..Content::default()
        };
        reply::method(&mut frames, probe, MethodId::TX_SELECT, |_| {});
        let to = (publish.exchange, publish.routing_key);
        reply::publish(&mut frames, probe, to.0, to.1, false);
        content.put(&mut frames, probe, 0);
        reply::method(&mut frames, probe, MethodId::TX_ROLLBACK, |_| {});
        self.asked = Some(Asked::Publish(Asks { channel, right }));
        line.hold();
        self.say(&frames, line);
        Some(false)
    }

    pub(super) fn may_or_not(
        &mut self,
        asks: &Asks,
        refused: Option<Close<'_>>,
        line: &mut Line<'_, '_>,
    ) {
        match refused {
            None => self.learned().rights.insert(asks.right, (), line.now()),
            Some(close) => {
                let text = close.text.to_vec();
                line.refuse(asks.channel, close.code, text, MethodId::BASIC_PUBLISH);
            }
        }
        self.end(line);
    }
}
