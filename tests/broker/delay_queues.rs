//! Delay queues as the management API tells them to a proxy: how many there are, and whether one holds what should be out.

use std::sync::Arc;
use std::time::Duration;

use dlx_proxy::registry::policy::Mode;
use lapin::options::{
    BasicNackOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, ExchangeKind};

use super::lab::{self, Way, until, until_for, within};
use super::node::Broker;
use super::scene::{Kind, Scene, get, ready};

/// The watchdog waits for two minutes before it says anything, and a node is late with its numbers.
const WATCHED: Duration = Duration::from_secs(240);

/// With a proxy that has looked at its delay queues once.
async fn open(broker: &Arc<Broker>, vhost: &str, settings: &[(&'static str, &str)]) -> Way {
    let (credentials, address) = broker.management();
    let url = format!("http://{credentials}@{address}");
    let settings = [&[("management-url", url.as_str())], settings].concat();
    let way = Way::open(broker, Mode::Takeover, vhost, &settings).await;
    let looked = format!("dlx_proxy_retries_overdue{{vhost=\"{vhost}\"}} 0");
    until("its watchdog has looked", async || {
        way.proxy.admin.get("/metrics").await.1.contains(&looked)
    })
    .await;
    way
}

/// A message of a queue of its own goes away for so many milliseconds. Returns the queue.
async fn away(scene: &Scene<'_>, millis: i32) -> String {
    let delay = ("x-delayed-retry-min", AMQPValue::LongInt(millis));
    let queue = scene.queue(&format!("after-{millis}"), &[delay]).await;
    let properties = BasicProperties::default();
    scene.publish(&queue, "body", properties).await;
    let returned = get(&scene.channel, &queue).await;
    let requeue = BasicNackOptions {
        requeue: true,
        multiple: false,
    };
    within("basic.nack", returned.nack(requeue))
        .await
        .expect("sent");
    queue
}

async fn close(scene: Scene<'_>) {
    within("closing", scene.connection.close(200, "done".into()))
        .await
        .expect("closed in order");
}

/// Milliseconds after which what moves dead letters of quorum queues tries once more; a delay queue keeps what is said while it is made.
const ONCE_MORE: &str = "dead_letter_worker_publisher_confirm_timeout";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_should_be_out_of_a_delay_queue_is_seen_until_it_is() {
    lab::each_place(&[Mode::Takeover], async |broker, _, vhost| {
        let way = open(broker, vhost, &[]).await;
        let overdue = async || {
            let labels = [format!("vhost=\"{vhost}\"")];
            let labels = labels.each_ref().map(String::as_str);
            let admin = way.proxy.admin;
            admin.metric("dlx_proxy_retries_overdue", &labels).await
        };
        let scene = Scene::open(&way, Kind::Classic).await;
        let direct = way.connect_directly().await;
        let channel = within("a channel", direct.create_channel());
        let channel = channel.await.expect("a channel");
        let due = || ShortString::from("dlx-proxy.due");
        let delete = channel.exchange_delete(due(), ExchangeDeleteOptions::default());
        within("exchange.delete-ok", delete).await.expect("deleted");
        let set = async |millis: u32| {
            let set = format!("application:set_env(rabbit, {ONCE_MORE}, {millis}).");
            broker.eval(&set).await
        };
        set(5_000).await;
        let queue = away(&scene, 100).await;
        let longer = away(&scene, 600_000).await;
        until("both are away", async || {
            let labels = ["outcome=\"confirmed\""];
            let admin = way.proxy.admin;
            admin.metric("dlx_proxy_retries_total", &labels).await == 2
        })
        .await;
        set(180_000).await;
        until_for(WATCHED, "it is overdue", async || overdue().await == 1).await;

        let durable = ExchangeDeclareOptions {
            durable: true,
            ..Default::default()
        };
        let declare =
            channel.exchange_declare(due(), ExchangeKind::Fanout, durable, FieldTable::default());
        within("exchange.declare-ok", declare)
            .await
            .expect("declared");
        let bind = channel.queue_bind(
            "dlx-proxy.intake".into(),
            due(),
            ShortString::default(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        within("queue.bind-ok", bind).await.expect("bound");
        assert!(get(&scene.channel, &queue).await.redelivered);
        until("nothing is overdue", async || overdue().await == 0).await;
        assert_eq!(ready(&channel, "dlx-proxy.delay.600000").await, 1);
        assert_eq!(ready(&channel, &longer).await, 0);
        within("closing", direct.close(200, "done".into()))
            .await
            .expect("closed in order");
        close(scene).await;
        way.proxy.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delay_queues_of_another_life_count() {
    lab::each_place(&[Mode::Takeover], async |broker, _, vhost| {
        let way = open(broker, vhost, &[]).await;
        let scene = Scene::open(&way, Kind::Classic).await;
        for millis in [100, 700] {
            let queue = away(&scene, millis).await;
            assert!(get(&scene.channel, &queue).await.redelivered);
        }
        close(scene).await;
        way.proxy.stop().await;

        let way = open(broker, vhost, &[("max-delay-queues", "2")]).await;
        let scene = Scene::open(&way, Kind::Classic).await;
        // Both fit into the longer one: no delay is more than doubled.
        for millis in [400, 500] {
            let queue = away(&scene, millis).await;
            assert!(get(&scene.channel, &queue).await.redelivered);
        }
        let names = "lists:sort([N || {resource, V, queue, N} <- rabbit_amqqueue:list_names(), V =:= <<\"VHOST\">>, \
                     string:prefix(N, <<\"dlx-proxy.delay.\">>) =/= nomatch]).";
        let made = broker.eval(&names.replace("VHOST", vhost)).await;
        let expected = "[<<\"dlx-proxy.delay.100\">>,<<\"dlx-proxy.delay.700\">>]";
        assert_eq!(made.split_whitespace().collect::<String>(), expected);
        let labels = ["limit=\"max-delay-queues\""];
        let admin = way.proxy.admin;
        let met = admin.metric("dlx_proxy_limits_met_total", &labels);
        assert_eq!(met.await, 2);
        close(scene).await;
        way.proxy.stop().await;
    })
    .await;
}
