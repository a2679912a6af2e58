//! A connection to the broker, and what is done with a queue there: how many messages it has, and a walk along them.

use std::time::Duration;

use futures::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions,
    QueueDeclareOptions,
};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Connection, Consumer, ErrorKind};
use tokio::time::timeout;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::amqp::reply_code::NOT_FOUND;
use crate::net::nodes::Node;

use super::{Error, PATIENCE, Place};

/// As the management UI shows it.
const NAME: &str = "dlx-proxy retries";
/// After so long without a message it is asked whether there is one.
const PAUSE: Duration = Duration::from_millis(300);

/// A connection, in one vhost.
pub(super) struct Broker(Connection);

#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// Messages that can be delivered.
    pub(super) ready: u64,
    /// Who is there to take them.
    pub(super) consumers: u64,
}

/// What becomes of a message on a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    /// The broker dead-letters it.
    Goes,
    /// It is removed for good.
    Removed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How many messages it sees at most.
    pub(super) seen: u64,
    /// How many messages that stay it holds at most: until the end of the walk they can neither expire nor be seen by others.
    pub(super) held: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Walked {
    /// Messages that are put back.
    pub(super) stay: u64,
    /// Messages that were let go, or removed.
    pub(super) gone: u64,
}

// === impl Broker ===

impl Broker {
    pub(super) async fn connect(place: &Place, vhost: &Vhost) -> Result<Broker, Error> {
        let mut refused = Error::Silent;
        for node in &place.nodes {
            match Broker::connect_to(node, place, vhost).await {
                Ok(broker) => return Ok(broker),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    async fn connect_to(node: &Node, place: &Place, vhost: &Vhost) -> Result<Broker, Error> {
        let connected = timeout(PATIENCE, place.access.connect(node, vhost, NAME)).await;
        let connected = connected.map_err(|_| Error::Silent)?;
        let connection = connected.map_err(|source| Error::Connect {
            node: node.clone(),
            vhost: vhost.clone(),
            source,
        })?;
        Ok(Broker(connection))
    }

    /// `None`: there is no such queue.
    pub(super) async fn count(&self, queue: &ShortStr) -> Result<Option<Counted>, Error> {
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        // A refusal closes its channel.
        let channel = self.channel(queue).await?;
        let name = queue.to_string().into();
        let asked = timeout(
            PATIENCE,
            channel.queue_declare(name, passive, FieldTable::default()),
        );
        match asked.await.map_err(|_| Error::Silent)? {
            Ok(declared) => {
                let counted = Counted {
                    ready: declared.message_count().into(),
                    consumers: declared.consumer_count().into(),
                };
                self.close(queue, &channel).await?;
                Ok(Some(counted))
            }
            Err(error) if is_not_found(&error) => Ok(None),
            Err(source) => Err(refused(queue)(source)),
        }
    }

    /// Takes the messages of a queue one after another, the oldest first, and asks what becomes of each. The broker puts those that stay back into
    /// their places when the channel is closed, or lost. It does so for one consumer alone: not for what was got by `basic.get`, and up to 4.2
    /// a `basic.nack` puts a message behind all others.
    pub(super) async fn walk(
        &self,
        queue: &ShortStr,
        bounds: Bounds,
        mut fate: impl FnMut(&BasicProperties) -> Fate,
    ) -> Result<Walked, Error> {
        let mut walked = Walked::default();
        let Bounds { seen, held } = bounds;
        if seen == 0 || held == 0 {
            return Ok(walked);
        }
        let channel = self.channel(queue).await?;
        answered(queue, channel.basic_qos(held, BasicQosOptions::default())).await?;
        let consume = channel.basic_consume(
            queue.to_string().into(),
            ShortString::default(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let mut consumer = answered(queue, consume).await?;
        while walked.seen() < seen && walked.stay < held.into() {
            let delivery = match timeout(PAUSE, consumer.next()).await {
                Ok(Some(delivery)) => delivery.map_err(refused(queue))?,
                Ok(None) => break,
                // Some have expired meanwhile, if no others are there.
                Err(_) if self.count(queue).await?.is_none_or(|it| it.ready == 0) => break,
                Err(_) => continue,
            };
            match fate(&delivery.properties) {
                Fate::Stays => walked.stay += 1,
                Fate::Goes => {
                    let reject = BasicRejectOptions { requeue: false };
                    answered(queue, channel.basic_reject(delivery.delivery_tag, reject)).await?;
                    walked.gone += 1;
                }
                Fate::Removed => {
                    let ack = BasicAckOptions::default();
                    answered(queue, channel.basic_ack(delivery.delivery_tag, ack)).await?;
                    walked.gone += 1;
                }
            }
        }
        self.settle(queue, &channel, &consumer).await?;
        self.close(queue, &channel).await?;
        Ok(walked)
    }

    /// Sees to it that the rejects are with the queue before the channel is closed: its process holds some back while it waits for the queue to
    /// confirm others. The answer to `basic.cancel` comes behind these confirms, and what follows it finds nothing held back.
    async fn settle(
        &self,
        queue: &ShortStr,
        channel: &Channel,
        consumer: &Consumer,
    ) -> Result<(), Error> {
        let cancel = channel.basic_cancel(consumer.tag(), BasicCancelOptions::default());
        answered(queue, cancel).await?;
        answered(queue, channel.basic_qos(1, BasicQosOptions::default())).await
    }

    pub(super) async fn end(self) {
        // All that was asked for is answered.
        let _ = timeout(PATIENCE, self.0.close(200, "".into())).await;
    }

    async fn channel(&self, queue: &ShortStr) -> Result<Channel, Error> {
        answered(queue, self.0.create_channel()).await
    }

    /// The broker has dealt with all that came before.
    async fn close(&self, queue: &ShortStr, channel: &Channel) -> Result<(), Error> {
        answered(queue, channel.close(200, "".into())).await
    }
}

async fn answered<T>(
    queue: &ShortStr,
    answer: impl Future<Output = lapin::Result<T>>,
) -> Result<T, Error> {
    let answer = timeout(PATIENCE, answer).await.map_err(|_| Error::Silent)?;
    answer.map_err(refused(queue))
}

fn refused(queue: &ShortStr) -> impl FnOnce(lapin::Error) -> Error {
    |source| Error::Refused {
        queue: queue.to_string(),
        source,
    }
}

fn is_not_found(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(said) if said.get_id() == NOT_FOUND)
}

// === impl Walked ===

impl Walked {
    /// Messages that were looked at.
    pub(super) fn seen(self) -> u64 {
        self.stay + self.gone
    }
}
