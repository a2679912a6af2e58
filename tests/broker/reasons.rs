//! Every way to die, for classic and quorum queues, in both modes.

use futures::future::join_all;
use lapin::options::{BasicGetOptions, BasicNackOptions, BasicRejectOptions};
use lapin::types::AMQPValue;
use lapin::{BasicProperties, Confirmation};

use super::dead_letter::{Death, assert_right, every_property};
use super::lab::within;
use super::scene::{Kind, Scene, consume, each_queue, each_queue_of, get, next, text};

/// Checks the next dead letter: `body` died in `queue`, to which it had been published by the default exchange.
async fn assert_dead(
    scene: &mut Scene<'_>,
    queue: &str,
    reason: &str,
    body: &str,
    original_expiration: Option<&str>,
) {
    let dead = scene.dead().await;
    let death = Death {
        queue,
        reason,
        published: ("", &[queue]),
        original_expiration,
        target: (&scene.dlx, queue),
    };
    assert_right(&dead, body, &every_property(), &death, scene);
}

fn nack(multiple: bool) -> BasicNackOptions {
    BasicNackOptions {
        multiple,
        requeue: false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reject() {
    each_queue(async |scene| {
        let queue = scene.queue("work", &[]).await;
        let mut work = consume(&scene.channel, &queue, false).await;
        // An expiration that does not come to pass leaves with the message all the same (and the broker writes it its own way).
        scene
            .publish(
                &queue,
                "rejected",
                every_property().with_expiration("60000".into()),
            )
            .await;
        scene.reject(&next(&mut work).await).await;
        assert_dead(scene, &queue, "rejected", "rejected", Some("60000")).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nack_one() {
    each_queue(async |scene| {
        let queue = scene.queue("work", &[]).await;
        let mut work = consume(&scene.channel, &queue, false).await;
        scene.publish(&queue, "nacked", every_property()).await;
        within("nack", next(&mut work).await.nack(nack(false)))
            .await
            .expect("nacked");
        assert_dead(scene, &queue, "rejected", "nacked", None).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nack_multiple_keeps_the_order() {
    each_queue(async |scene| {
        let queue = scene.queue("work", &[]).await;
        let mut work = consume(&scene.channel, &queue, false).await;
        let names: Vec<String> = (0..100).map(|number| format!("message {number}")).collect();
        join_all(
            names
                .iter()
                .map(|name| scene.publish(&queue, name, every_property())),
        )
        .await;
        let mut last = next(&mut work).await;
        for _ in 1..names.len() {
            last = next(&mut work).await;
        }
        within("nack", last.nack(nack(true))).await.expect("nacked");
        for name in &names {
            assert_dead(scene, &queue, "rejected", name, None).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tag_zero_means_all() {
    each_queue(async |scene| {
        let queue = scene.queue("work", &[]).await;
        for body in ["first", "second", "third"] {
            scene.publish(&queue, body, every_property()).await;
        }
        // On a channel of its own: the dead letters are unacked deliveries too.
        let channel = within("a channel", scene.connection.create_channel())
            .await
            .expect("a channel");
        for _ in 0..3 {
            get(&channel, &queue).await;
        }
        within("nack", channel.basic_nack(0, nack(true)))
            .await
            .expect("nacked");
        for body in ["first", "second", "third"] {
            assert_dead(scene, &queue, "rejected", body, None).await;
        }
        within("nack", channel.basic_nack(0, nack(true)))
            .await
            .expect("none are all too");
        // lapin refuses to close a connection while a dropped channel is closing.
        within("channel.close-ok", channel.close(200, "done".into()))
            .await
            .expect("closed");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_and_reject() {
    each_queue(async |scene| {
        let queue = scene.queue("work", &[]).await;
        scene.publish(&queue, "got", every_property()).await;
        scene.reject(&get(&scene.channel, &queue).await).await;
        assert_dead(scene, &queue, "rejected", "got", None).await;
        let again = scene
            .channel
            .basic_get(queue.as_str().into(), BasicGetOptions::default());
        assert!(
            within("basic.get-empty", again)
                .await
                .expect("got")
                .is_none()
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_ttl() {
    each_queue(async |scene| {
        let queue = scene.queue("wait", &[]).await;
        scene
            .publish(
                &queue,
                "short",
                every_property().with_expiration("50".into()),
            )
            .await;
        assert_dead(scene, &queue, "expired", "short", Some("50")).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_ttl() {
    each_queue(async |scene| {
        let queue = scene
            .queue("wait", &[("x-message-ttl", AMQPValue::LongInt(50))])
            .await;
        scene.publish(&queue, "lingering", every_property()).await;
        assert_dead(scene, &queue, "expired", "lingering", None).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_length() {
    each_queue(async |scene| {
        for (name, limit) in [("length", 2), ("length-bytes", 12)] {
            let argument = if limit == 2 {
                "x-max-length"
            } else {
                "x-max-length-bytes"
            };
            let queue = scene
                .queue(name, &[(argument, AMQPValue::LongInt(limit))])
                .await;
            for body in ["oldest", "middle", "newest"] {
                scene.publish(&queue, body, every_property()).await;
            }
            assert_dead(scene, &queue, "maxlen", "oldest", None).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reject_publish_dlx() {
    each_queue_of(Kind::Classic, async |scene| {
        let overflow = ("x-overflow", text("reject-publish-dlx"));
        let queue = scene
            .queue("full", &[("x-max-length", AMQPValue::LongInt(1)), overflow])
            .await;
        assert_eq!(
            scene.publish(&queue, "stays", every_property()).await,
            Confirmation::Ack(None)
        );
        assert_eq!(
            scene.publish(&queue, "refused", every_property()).await,
            Confirmation::Nack(None)
        );
        assert_dead(scene, &queue, "maxlen", "refused", None).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivery_limit() {
    each_queue_of(Kind::Quorum, async |scene| {
        let queue = scene
            .queue("poison", &[("x-delivery-limit", AMQPValue::LongInt(1))])
            .await;
        scene.publish(&queue, "poison", every_property()).await;
        for _ in 0..2 {
            let requeue = BasicRejectOptions { requeue: true };
            let delivery = get(&scene.channel, &queue).await;
            within("reject", delivery.reject(requeue))
                .await
                .expect("rejected");
        }
        assert_dead(scene, &queue, "delivery_limit", "poison", None).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_death() {
    each_queue(async |scene| {
        let queue = scene.queue("work", &[]).await;
        for body in ["purged", "deleted"] {
            scene
                .publish(&queue, body, BasicProperties::default())
                .await;
            if body == "purged" {
                let purge = scene
                    .channel
                    .queue_purge(queue.as_str().into(), Default::default());
                within("queue.purge-ok", purge).await.expect("purged");
            }
        }
        let delete = scene
            .channel
            .queue_delete(queue.as_str().into(), Default::default());
        within("queue.delete-ok", delete).await.expect("deleted");
        // The next to die is the next to arrive: nothing came before it.
        let queue = scene.queue("work", &[]).await;
        scene.publish(&queue, "rejected", every_property()).await;
        scene.reject(&get(&scene.channel, &queue).await).await;
        assert_dead(scene, &queue, "rejected", "rejected", None).await;
    })
    .await;
}
