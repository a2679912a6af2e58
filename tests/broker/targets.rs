//! Where dead letters go: the key of the queue or the message's own, the default exchange, an exchange that is missing.

use lapin::ExchangeKind;
use lapin::message::Delivery;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::FieldTable;

use super::dead_letter::{Death, assert_right, every_property};
use super::lab::{until, within};
use super::scene::{Argument, Scene, consume, declare, each_queue, get, next, ready, text};

/// Publishes a message to `queue`, gets and rejects it.
async fn die(scene: &Scene<'_>, queue: &str) {
    scene.publish(queue, "body", every_property()).await;
    scene.reject(&get(&scene.channel, queue).await).await;
}

fn assert_came(dead: &Delivery, scene: &Scene<'_>, queue: &str, target: (&str, &str)) {
    let death = Death {
        queue,
        reason: "rejected",
        published: ("", &[queue]),
        original_expiration: None,
        target,
    };
    assert_right(dead, "body", &every_property(), &death, scene);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_key() {
    each_queue(async |scene| {
        for key in ["orders.dead", ""] {
            let argument: Argument = ("x-dead-letter-routing-key", text(key));
            let queue = scene
                .queue(&format!("key-{}", key.len()), &[argument])
                .await;
            die(scene, &queue).await;
            let dead = scene.dead().await;
            assert_came(&dead, scene, &queue, (&scene.dlx, key));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_key_by_the_message_s_own() {
    each_queue(async |scene| {
        let queue = scene.queue("own-key", &[]).await;
        die(scene, &queue).await;
        let dead = scene.dead().await;
        assert_came(&dead, scene, &queue, (&scene.dlx, &queue));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_default_exchange() {
    each_queue(async |scene| {
        let arguments = [
            ("x-dead-letter-exchange", text("")),
            ("x-dead-letter-routing-key", text(&scene.graveyard)),
        ];
        let queue = scene.queue_with("default", &arguments).await;
        die(scene, &queue).await;
        let dead = scene.dead().await;
        assert_came(&dead, scene, &queue, ("", &scene.graveyard));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_exchange_parks() {
    each_queue(async |scene| {
        let missing = format!("{}.missing", scene.kind);
        let queue = scene
            .queue_with("orphan", &[("x-dead-letter-exchange", text(&missing))])
            .await;
        die(scene, &queue).await;
        // Clients may not name the parking queue through the proxy.
        let direct = scene.way.connect_directly().await;
        let channel = within("a channel", direct.create_channel())
            .await
            .expect("a channel");
        until("the message is parked", async || {
            ready(&channel, "dlx-proxy.parked").await == 1
        })
        .await;
        let parked = get(&channel, "dlx-proxy.parked").await;
        assert_eq!(parked.data, b"body");
        within("an ack", parked.ack(Default::default()))
            .await
            .expect("acked");

        // Declared later, it works.
        let durable = ExchangeDeclareOptions {
            durable: true,
            ..Default::default()
        };
        let exchange = channel.exchange_declare(
            missing.as_str().into(),
            ExchangeKind::Fanout,
            durable,
            FieldTable::default(),
        );
        within("exchange.declare-ok", exchange)
            .await
            .expect("declared");
        let late = format!("{}.late", scene.kind);
        declare(&channel, &late, &[]).await;
        let bind = channel.queue_bind(
            late.as_str().into(),
            missing.as_str().into(),
            "".into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        within("queue.bind-ok", bind).await.expect("bound");
        die(scene, &queue).await;
        let mut dead = consume(&scene.channel, &late, true).await;
        assert_came(&next(&mut dead).await, scene, &queue, (&missing, &queue));
        within("closing", direct.close(200, "done".into()))
            .await
            .expect("closed");
    })
    .await;
}
