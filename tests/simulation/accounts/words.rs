//! What clients say, and what they are told.

use super::super::client::{PUBLISHING, Said, Verb};
use super::super::codec::frame::Frame;
use super::super::model::Conn;
use super::duties::Duty;
use super::history::History;
use super::overdue::is_of_earlier_channel;
use super::retries::millis;
use super::{Accounts, Bytes, Micros};

impl Accounts {
    /// # Errors
    /// It was told what is not so.
    pub(crate) fn said(&mut self, conn: Conn, said: Said, at: Micros) -> Result<(), String> {
        match said {
            Said::Verb(channel, tag, verb) => {
                let key = (conn, channel, tag);
                self.verbs.insert(key, (verb, at));
                let delivery = self.delivered.get(&key);
                let Some(delivery) = delivery.filter(|of| !of.is_taken_back) else {
                    return Ok(());
                };
                let (body, mark) = (delivery.copy.body.clone(), delivery.copy.mark);
                match verb {
                    Verb::Ack | Verb::Recovered => {}
                    Verb::Dead => {
                        let seen = delivery.seen.clone().unwrap_or_default();
                        let duty = Duty::Dies(seen.and_rejected(&delivery.queue));
                        let unknowing = self.may_not_know(conn, &delivery.queue);
                        let key = (body.clone(), duty.clone());
                        self.deaths.heard(body, duty, (0, mark), Some(at));
                        self.deaths.is_decided_by(key, false, unknowing);
                    }
                    Verb::Returned(by) => {
                        let (now, lap) = (millis(at), delivery.copy.by_itself + 1);
                        let duties = self.returns(conn, delivery, by, (now, now), at..=at);
                        let first = self.rules.at_first(&delivery.queue).retries;
                        let now = self.rules.in_force(conn, &delivery.queue, &(at..=at));
                        let anew = now.iter().all(|ruling| ruling.retries != first);
                        self.count.otherwise += usize::from(anew);
                        self.hear_of(&body, (lap, mark), duties, Some(at));
                    }
                }
            }
            Said::Published(body, history) => {
                let waiting = self.on_the_way.entry(conn).or_default();
                waiting.push_back((body, history));
            }
            Said::Judged(channel, tag, millis) => {
                let asked = self.asked.entry((conn, channel)).or_default();
                asked.push_back((tag, millis, at));
            }
            Said::Delayed(body, due) => self.is_delayed(&body, due, at),
            Said::Answered(body, good) => return self.is_answered(conn, body, good),
            Said::Declared(channel, queue, saying) => {
                self.sends_declare(conn, (channel, queue), saying, at);
            }
            Said::Opened(channel) => {
                self.declares_no_more(conn, channel);
                self.asked.remove(&(conn, channel));
                self.tags_begin_anew((conn, channel), at);
                self.verbs
                    .retain(|(of, id, _), _| (*of, *id) != (conn, channel));
                self.wrong.remove(&(conn, channel));
                self.recovers.remove(&(conn, channel));
                if channel == PUBLISHING {
                    self.on_the_way.remove(&conn);
                }
            }
            Said::Recovers(channel) => drop(self.recovers.insert((conn, channel))),
            Said::Wrong(channel) => drop(self.wrong.insert((conn, channel))),
        }
        Ok(())
    }

    /// A client reads that there is a queue as it declared it: from now on its session knows the queue. Not if it has messages of an earlier one of
    /// that name, or of what may be one.
    pub(crate) fn saw_declared(&mut self, conn: Conn, queue: &Bytes, at: Micros) {
        if self.is_stranger(conn) {
            return;
        }
        self.knows_again(conn, queue, at);
        let open = self.delivered.range((conn, 0, 0)..);
        let mut open = open.take_while(|(tag, _)| tag.0 == conn);
        if open.all(|(tag, delivery)| delivery.queue != *queue || is_of_earlier_channel(*tag)) {
            self.declared.insert((conn, queue.clone()));
        }
    }

    /// A client reads what it was sent.
    ///
    /// # Errors
    /// It is told of other deaths than there were.
    pub(crate) fn saw(
        &mut self,
        (conn, channel): (Conn, u16),
        frame: &Frame,
        at: Micros,
    ) -> Result<(), String> {
        let tag = (conn, channel, frame.number("delivery-tag"));
        let Some(delivery) = self.delivered.get_mut(&tag) else {
            return Ok(());
        };
        let (seen, told) = (History::of(frame).counts(), delivery.copy.told());
        if !told.contains(&seen) {
            let body = String::from_utf8_lossy(&delivery.copy.body);
            let there_were = &told[0];
            return Err(format!(
                "{body} died of {there_were}; a client reads {seen}"
            ));
        }
        let ours = |(name, _): &&(Bytes, _)| name.starts_with(b"x-dlx-proxy-");
        if let Some((name, _)) = frame.headers().and_then(|of| of.fields.iter().find(ours)) {
            let name = String::from_utf8_lossy(name);
            return Err(format!("a client reads {name}"));
        }
        (delivery.seen, delivery.whole) = (Some(seen), Some(at));
        Accounts::check_told(delivery, frame)
    }
}
