//! Frames of the link: which channel each is for, and what the close of a channel means to the others.

use crate::amqp::method::MethodId;
use crate::amqp::reply_code::ACCESS_REFUSED;
use crate::link::{Frame, Linked};
use crate::machine::{Event, Limit, Now, Role};

use super::{CONSUMER, Effects, Intake, PARKED, TOPOLOGY};

impl Intake {
    /// # Errors
    /// When the broker violates the protocol.
    pub(super) fn frame(
        &mut self,
        frame: Frame<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<(), &'static str> {
        let id = frame.method();
        match (frame.channel, id) {
            (TOPOLOGY, Some(MethodId::CHANNEL_CLOSE)) => {
                let (code, cause) = closed(frame, fx);
                if self.topology.closed(code, &cause, now, fx) {
                    tell(cause, fx);
                }
            }
            (TOPOLOGY, Some(id)) => {
                if self.topology.reply(id, now, fx) {
                    self.begin(fx);
                }
            }
            (CONSUMER, Some(MethodId::CHANNEL_CLOSE)) => {
                let (code, cause) = closed(frame, fx);
                if self.consumer.learn(&cause) {
                    tell(cause.clone(), fx);
                }
                self.consumer_lost(false, fx);
                match code {
                    ACCESS_REFUSED => self.topology.not_consumed((code, cause), now),
                    _ => self.topology.again(now),
                }
            }
            (CONSUMER, Some(MethodId::CHANNEL_CLOSE_OK)) => {
                if self.consumer.close_answered() {
                    self.begin(fx);
                }
            }
            (CONSUMER, Some(MethodId::BASIC_CANCEL)) => {
                // The queue was deleted or lost its leader: it is declared anew, and what is held stays settleable.
                self.consumer.cancelled(fx);
                self.topology.again(now);
            }
            (PARKED, Some(MethodId::CHANNEL_CLOSE)) => {
                let (_, cause) = closed(frame, fx);
                if !self.parked.is_locking() {
                    tell(cause, fx);
                }
                self.parked_lost(now, fx);
            }
            (PARKED, id) => self.parked.frame(frame, id, &self.settings, now, fx)?,
            (CONSUMER, _) => {
                if let Some(delivery) = self.consumer.frame(frame, id, fx)? {
                    self.deliver(delivery, now, fx);
                    if !self.reads() {
                        fx.events.push(Event::LimitMet(Limit::IntakeBytes));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Answers the close of a channel; returns the broker's words.
fn closed(frame: Frame<'_>, fx: &mut Effects) -> (u16, String) {
    let (code, text) = frame.closed(fx);
    (code, format!("{code} {text}"))
}

fn tell(cause: String, fx: &mut Effects) {
    let role = Role::Intake;
    fx.events.push(Event::ChannelClosed { role, cause });
}
