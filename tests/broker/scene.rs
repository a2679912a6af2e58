//! What most tests with lapin need: an exchange for dead letters, a queue behind it, and queues in which messages die.

use std::fmt;

use futures::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicPublishOptions, BasicRejectOptions,
    ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, Consumer, ExchangeKind};

use super::lab::{Way, until, within};

/// A queue type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Classic,
    Quorum,
}

/// One connection through the proxy, and the objects of one test.
pub(crate) struct Scene<'a> {
    pub way: &'a Way,
    pub kind: Kind,
    pub connection: Connection,
    pub channel: Channel,
    /// Where dead letters go unless a test wants them elsewhere: a topic exchange.
    pub dlx: String,
    /// The queue behind it, which takes all keys; always classic.
    pub graveyard: String,
    dead: Consumer,
}

/// An argument of a queue.
pub(crate) type Argument = (&'static str, AMQPValue);

pub(crate) fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

/// Declares a durable queue.
pub(crate) async fn declare(channel: &Channel, queue: &str, arguments: &[Argument]) {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        table.insert((*name).into(), value.clone());
    }
    let declared = channel.queue_declare(queue.into(), QueueDeclareOptions::durable(), table);
    within("queue.declare-ok", declared)
        .await
        .expect("declared");
}

/// Starts a consumer.
pub(crate) async fn consume(channel: &Channel, queue: &str, no_ack: bool) -> Consumer {
    let options = BasicConsumeOptions {
        no_ack,
        ..Default::default()
    };
    let consume = channel.basic_consume(
        queue.into(),
        ShortString::default(),
        options,
        FieldTable::default(),
    );
    within("basic.consume-ok", consume)
        .await
        .expect("consuming")
}

/// The next delivery of a consumer.
pub(crate) async fn next(consumer: &mut Consumer) -> Delivery {
    within("a delivery", consumer.next())
        .await
        .expect("the consumer goes on")
        .expect("a delivery")
}

/// Gets a message that must come, without `no_ack`.
pub(crate) async fn get(channel: &Channel, queue: &str) -> Delivery {
    let mut delivery = None;
    until(format_args!("a message in {queue}"), async || {
        let got = channel.basic_get(queue.into(), BasicGetOptions::default());
        let got = within("basic.get-ok", got).await.expect("got");
        delivery = got.map(|message| message.delivery);
        delivery.is_some()
    })
    .await;
    delivery.expect("it came")
}

/// Ready messages of a queue.
pub(crate) async fn ready(channel: &Channel, queue: &str) -> u32 {
    let options = QueueDeclareOptions {
        passive: true,
        ..Default::default()
    };
    let declared = channel.queue_declare(queue.into(), options, FieldTable::default());
    within("queue.declare-ok", declared)
        .await
        .expect("it exists")
        .message_count()
}

// === impl Kind ===

impl Kind {
    pub(crate) fn argument(self) -> Argument {
        ("x-queue-type", text(&self.to_string()))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Classic => "classic",
            Kind::Quorum => "quorum",
        })
    }
}

// === impl Scene ===

impl<'a> Scene<'a> {
    pub(crate) async fn open(way: &'a Way, kind: Kind) -> Scene<'a> {
        let connection = way.connect().await;
        let channel = within("a channel", connection.create_channel())
            .await
            .expect("a channel");
        let confirm = channel.confirm_select(ConfirmSelectOptions::default());
        within("confirm.select-ok", confirm)
            .await
            .expect("confirms");
        let (dlx, graveyard) = (format!("{kind}.dlx"), format!("{kind}.dead"));
        let declare_dlx = channel.exchange_declare(
            dlx.as_str().into(),
            ExchangeKind::Topic,
            ExchangeDeclareOptions::default(),
            FieldTable::default(),
        );
        within("exchange.declare-ok", declare_dlx)
            .await
            .expect("declared");
        declare(&channel, &graveyard, &[]).await;
        let bind = channel.queue_bind(
            graveyard.as_str().into(),
            dlx.as_str().into(),
            "#".into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        within("queue.bind-ok", bind).await.expect("bound");
        let dead = consume(&channel, &graveyard, false).await;
        Scene {
            way,
            kind,
            connection,
            channel,
            dlx,
            graveyard,
            dead,
        }
    }

    /// A queue of the scene's type whose dead letters go to the scene's exchange. Returns its name.
    pub(crate) async fn queue(&self, name: &str, arguments: &[Argument]) -> String {
        let target = ("x-dead-letter-exchange", text(&self.dlx));
        self.queue_with(name, &[&[target], arguments].concat())
            .await
    }

    /// A queue of the scene's type. Returns its name.
    pub(crate) async fn queue_with(&self, name: &str, arguments: &[Argument]) -> String {
        let name = format!("{}.{name}", self.kind);
        declare(
            &self.channel,
            &name,
            &[&[self.kind.argument()], arguments].concat(),
        )
        .await;
        name
    }

    /// Publishes to a queue by the default exchange, and waits for the confirm.
    pub(crate) async fn publish(
        &self,
        queue: &str,
        body: &str,
        properties: BasicProperties,
    ) -> Confirmation {
        let published = self.channel.basic_publish(
            ShortString::default(),
            queue.into(),
            BasicPublishOptions::default(),
            body.as_bytes(),
            properties,
        );
        let confirm = within("publishing", published).await.expect("published");
        within("a confirm", confirm).await.expect("a confirm")
    }

    /// Rejects without requeue.
    pub(crate) async fn reject(&self, delivery: &Delivery) {
        let reject = delivery.reject(BasicRejectOptions { requeue: false });
        within("rejecting", reject).await.expect("rejected");
    }

    /// The next dead letter of the scene's exchange.
    pub(crate) async fn dead(&mut self) -> Delivery {
        let delivery = next(&mut self.dead).await;
        within("an ack", delivery.ack(BasicAckOptions::default()))
            .await
            .expect("acked");
        delivery
    }
}
