//! Alarms, and times without a link of the publisher's, that last longer than anybody's patience: nothing is parked whose target is there, and
//! consumers that reject get on.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dlx_proxy::registry::policy::Mode;
use lapin::options::{
    BasicAckOptions, BasicPublishOptions, BasicQosOptions, BasicRejectOptions, ConfirmSelectOptions,
};
use lapin::types::{AMQPValue, ShortString};
use lapin::{BasicProperties, Channel, Connection};

use super::lab::{connect, each_alone, each_broker, until, within};
use super::proxy::Proxy;
use super::relay::{Fault, PUBLISHER, Relay};
use super::scene::{consume, declare, next, ready, text};

/// Messages of each kind.
const MESSAGES: usize = 200;
/// What the proxy waits for is waited for no longer than this.
const LONG: Duration = Duration::from_secs(9);

async fn channel(connection: &Connection) -> Channel {
    let channel = within("a channel", connection.create_channel())
        .await
        .expect("a channel");
    let confirm = channel.confirm_select(ConfirmSelectOptions::default());
    within("confirm.select-ok", confirm)
        .await
        .expect("confirms");
    channel
}

/// `dead`, and a queue whose dead letters go there; messages in it live so many milliseconds, or until somebody rejects them.
async fn declare_both(channel: &Channel, queue: &str, live: Option<i32>) {
    declare(channel, "dead", &[]).await;
    let mut arguments = vec![
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text("dead")),
    ];
    arguments.extend(live.map(|live| ("x-message-ttl", AMQPValue::LongInt(live))));
    declare(channel, queue, &arguments).await;
}

/// Publishes this many messages, the first of that number, to a queue.
async fn publish(channel: &Channel, queue: &str, first: usize, count: usize) {
    let mut confirms = Vec::new();
    for number in first..first + count {
        let body = format!("{queue} {number}");
        let published = channel.basic_publish(
            ShortString::default(),
            queue.into(),
            BasicPublishOptions::default(),
            body.as_bytes(),
            BasicProperties::default().with_delivery_mode(2),
        );
        confirms.push(within("publishing", published).await.expect("published"));
    }
    for confirm in confirms {
        within("a confirm", confirm).await.expect("a confirm");
    }
}

/// Takes this many different dead letters. Returns how many came twice.
async fn take_dead(channel: &Channel, count: usize) -> usize {
    let mut dead = consume(channel, "dead", false).await;
    let (mut came, mut twice) = (BTreeSet::new(), 0);
    while came.len() < count {
        let delivery = next(&mut dead).await;
        let ack = delivery.ack(BasicAckOptions::default());
        within("an ack", ack).await.expect("acked");
        twice += usize::from(!came.insert(delivery.data));
    }
    twice
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_parks_nothing_and_stops_no_consumer() {
    each_alone(&[Mode::Takeover], async |way| {
        let publishing = way.connect().await;
        let to = channel(&publishing).await;
        declare_both(&to, "rejected", None).await;
        declare_both(&to, "expired", Some(6_000)).await;
        // Whoever has not published is not blocked.
        let consuming = way.connect().await;
        let from = channel(&consuming).await;
        declare_both(&from, "rejected", None).await;
        let qos = from.basic_qos(5, BasicQosOptions::default());
        within("basic.qos-ok", qos).await.expect("a prefetch");
        let direct = way.connect_directly().await;
        let aside = channel(&direct).await;

        publish(&to, "rejected", 0, MESSAGES).await;
        publish(&to, "expired", 0, MESSAGES).await;
        let alarm = async {
            until("the alarm", async || {
                let alarms = way.broker.eval("rabbit_alarm:get_alarms().").await;
                alarms.contains("memory")
            })
            .await;
            let begun = Instant::now();
            let mut rejected = consume(&from, "rejected", false).await;
            for _ in 0..MESSAGES {
                let delivery = next(&mut rejected).await;
                let reject = delivery.reject(BasicRejectOptions { requeue: false });
                within("rejecting", reject).await.expect("rejected");
            }
            until("they have expired", async || {
                ready(&aside, "expired").await == 0
            })
            .await;
            tokio::time::sleep(LONG.saturating_sub(begun.elapsed())).await;
            assert_eq!(ready(&aside, "dlx-proxy.parked").await, 0);
        };
        way.broker.under_memory_alarm(alarm).await;

        // What was on its way when the alarm came can be there twice, but nothing else.
        let twice = take_dead(&aside, 2 * MESSAGES).await;
        assert!(twice <= 5, "{twice} came twice");
        assert_eq!(ready(&aside, "dlx-proxy.parked").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_is_away_parks_nothing_and_leaves_the_intake_queue_to_another_proxy() {
    each_broker(async |broker, vhost| {
        let mut relay = Relay::new(broker.address()).await;
        relay.plug_in().await;
        let upstream = broker.upstream(relay.port(), &broker.credentials());
        let first = start(&upstream, vhost).await;
        let client = connect(broker, first.address.port(), vhost).await;
        let to = channel(&client).await;
        declare_both(&to, "expired", Some(1)).await;
        declare_both(&to, "rejected", None).await;
        let direct = connect(broker, broker.uri.authority.port, vhost).await;
        let aside = channel(&direct).await;

        relay.set(Fault::Cut(PUBLISHER));
        until("its publisher is away", async || {
            !first.admin.is_ready().await
        })
        .await;
        let begun = Instant::now();
        publish(&to, "rejected", 0, MESSAGES).await;
        let mut rejected = consume(&to, "rejected", false).await;
        for _ in 0..MESSAGES {
            let delivery = next(&mut rejected).await;
            let reject = delivery.reject(BasicRejectOptions { requeue: false });
            within("rejecting", reject).await.expect("rejected");
        }
        publish(&to, "expired", 0, MESSAGES).await;
        until("it leaves the queue to others", async || {
            !is_consuming(&first, vhost).await
        })
        .await;
        until("rejects have gone back to the broker", async || {
            let withheld = first.admin.metric("dlx_proxy_withheld_rejects", &[]).await;
            withheld == 0
        })
        .await;
        tokio::time::sleep(LONG.saturating_sub(begun.elapsed())).await;
        assert_eq!(ready(&aside, "dlx-proxy.parked").await, 0);
        assert_eq!(ready(&aside, "dead").await, 0);

        let second = start(
            &broker.upstream(broker.uri.authority.port, &broker.credentials()),
            vhost,
        )
        .await;
        until("the other one takes them", async || {
            ready(&aside, "dead").await == 2 * MESSAGES as u32
        })
        .await;
        second.stop().await;

        relay.set(Fault::None);
        until("it consumes again", async || {
            is_consuming(&first, vhost).await
        })
        .await;
        publish(&to, "expired", MESSAGES, 1).await;
        assert_eq!(take_dead(&aside, 2 * MESSAGES + 1).await, 0, "came twice");
        assert_eq!(ready(&aside, "dlx-proxy.parked").await, 0);
        first.stop().await;
    })
    .await;
}

async fn start(upstream: &str, vhost: &str) -> Proxy {
    let proxy = Proxy::start(upstream, Mode::Takeover, vhost, &[]).await;
    until("ready", async || proxy.admin.is_ready().await).await;
    proxy
}

async fn is_consuming(proxy: &Proxy, vhost: &str) -> bool {
    proxy
        .admin
        .metric("dlx_proxy_intake_consuming", &[vhost])
        .await
        == 1
}
