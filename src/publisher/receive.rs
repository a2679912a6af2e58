//! What the broker says on our channels: confirms, returns, closes.

use crate::amqp::frame::Kind;
use crate::amqp::incoming::Incoming;
use crate::amqp::method::{MethodId, Settle};
use crate::amqp::reply;
use crate::link::Frame;
use crate::machine::Now;
use crate::publisher::Effects;

use super::Publisher;
use super::item::Item;
use super::lane::Attempt;
use super::returns::{Digest, Returned, Returning};

impl Publisher {
    /// A frame on one of our channels.
    ///
    /// # Errors
    /// What the broker did wrong.
    pub(super) fn frame(
        &mut self,
        frame: Frame<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<(), &'static str> {
        let Some(at) = self.lanes.of_channel(frame.channel) else {
            return Ok(());
        };
        match frame.kind {
            Kind::Method => self.method(at, frame, now, fx),
            Kind::Header => {
                // Headers can be larger when they come back; bodies cannot.
                let limit = self.items.bytes() + frame.payload.len();
                let returning = self.lanes.get(at).returning.as_mut();
                let fits = returning.map(|returning| returning.header(frame.payload, limit));
                if fits != Some(Ok(true)) {
                    return Err("the broker returned what was not published");
                }
                self.returned(at);
                Ok(())
            }
            Kind::Body => {
                if let Some(returning) = &mut self.lanes.get(at).returning {
                    returning.body(frame.payload);
                }
                self.returned(at);
                Ok(())
            }
            Kind::Heartbeat | Kind::Other(_) => Ok(()),
        }
    }

    fn method(
        &mut self,
        at: usize,
        frame: Frame<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<(), &'static str> {
        match MethodId::peek(frame.payload) {
            Some(id @ (MethodId::BASIC_ACK | MethodId::BASIC_NACK)) => {
                let confirm = Settle::parse(frame.payload)
                    .map_err(|_| "the broker sent a confirm that cannot be read")?;
                self.proven = true;
                self.confirmed(at, confirm, id == MethodId::BASIC_ACK, now, fx);
            }
            Some(MethodId::BASIC_RETURN) => {
                let returning = Returning::parse(frame.payload)
                    .ok_or("the broker sent a return that cannot be read")?;
                self.lanes.get(at).returning = Some(Incoming::new(returning));
            }
            Some(MethodId::CONFIRM_SELECT_OK) => self.lanes.get(at).answered(),
            Some(MethodId::CHANNEL_CLOSE) => self.channel_closed(at, frame.payload, now, fx),
            Some(MethodId::CHANNEL_FLOW) => {
                let active = frame.payload.get(4).copied().unwrap_or(1);
                let out = fx.broker.build(&[]);
                reply::method(out, frame.channel, MethodId::CHANNEL_FLOW_OK, |a| {
                    a.octet(active).end()
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn confirmed(&mut self, at: usize, confirm: Settle, acked: bool, now: Now, fx: &mut Effects) {
        let tag = confirm.delivery_tag.0;
        if !confirm.multiple {
            if let Some(attempt) = self.lanes.get(at).take(tag) {
                self.settle(at, tag, attempt, acked, now, fx);
            }
            return;
        }
        while let Some((tag, attempt)) = self.lanes.get(at).take_through(tag) {
            self.settle(at, tag, attempt, acked, now, fx);
        }
    }

    /// If the return on that lane is whole: marks the publish that came back. Where none fits, the broker has changed it (an interceptor, an
    /// exchange): then all that it may have been count as returned, by as much as is left to compare. So some may be parked that did arrive, and
    /// none is lost.
    fn returned(&mut self, at: usize) {
        let lane = self.lanes.get(at);
        let whole = lane.returning.take_if(|returning| returning.is_whole());
        let Some(returned) = whole.and_then(Returned::new) else {
            return;
        };
        let went_to = |item: &Item, attempt: &Attempt| {
            let exchange = item.exchange(attempt.stage, self.settings.names.parking());
            returned.went_to(exchange, &item.publication.routing_key)
        };
        let digest = Digest::of(&returned.content);
        let items = &mut self.items;
        let found = lane.mark_returned(|attempt| {
            let item = items.get_mut(attempt.key);
            item.is_some_and(|item| {
                item.digest() == digest
                    && went_to(item, attempt)
                    && returned.is(&item.publication.content)
            })
        });
        if found {
            return;
        }
        let same_body = |item: &Item, attempt: &Attempt| {
            let content = &item.publication.content;
            content.body == returned.content.body && went_to(item, attempt)
        };
        let mut mark = |fits: &dyn Fn(&Item, &Attempt) -> bool| {
            lane.mark_all_returned(|attempt| {
                let item = items.get(attempt.key);
                item.is_some_and(|item| fits(item, attempt))
            })
        };
        let _ = mark(&same_body) || mark(&went_to) || mark(&|_, _| true);
    }
}
