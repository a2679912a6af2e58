//! What a policy of the broker's adds to a queue's dead-letter exchange, read from the management API: at each kind of death, when it
//! changes, and while the API is away.

use dlx_proxy::registry::policy::Mode;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, ExchangeKind};

use super::lab::{self, Way, until, within};
use super::relay::Relay;
use super::scene::{Kind, Scene, get, text};

/// Runs `test` on each broker, in each mode, for each queue type, with a proxy that reads the management API over a cable.
async fn each_queue(test: impl AsyncFn(&mut Scene<'_>, &mut Relay)) {
    lab::each_place(lab::BOTH, async |broker, mode, vhost| {
        let (credentials, address) = broker.management();
        let mut cable = Relay::new(address).await;
        cable.plug_in().await;
        let url = format!("http://{credentials}@127.0.0.1:{}", cable.port());
        let way = Way::open(broker, mode, vhost, &[("management-url", url.as_str())]).await;
        for kind in [Kind::Classic, Kind::Quorum] {
            let mut scene = Scene::open(&way, kind).await;
            test(&mut scene, &mut cable).await;
            within("closing", scene.connection.close(200, "done".into()))
                .await
                .expect("closed in order");
        }
        way.proxy.stop().await;
    })
    .await;
}

/// The key of the dead letter of a message that was rejected in this queue.
async fn rejected(scene: &mut Scene<'_>, queue: &str) -> String {
    scene
        .publish(queue, "body", BasicProperties::default())
        .await;
    scene.reject(&get(&scene.channel, queue).await).await;
    scene.dead().await.routing_key.to_string()
}

/// The same for one that expired.
async fn expired(scene: &mut Scene<'_>, queue: &str) -> String {
    let soon = BasicProperties::default().with_expiration("1".into());
    scene.publish(queue, "body", soon).await;
    scene.dead().await.routing_key.to_string()
}

async fn until_rejected(scene: &mut Scene<'_>, queue: &str, key: &str) {
    // Each is one or the other.
    until(format!("rejects go with {key}"), async || {
        rejected(scene, queue).await == key
    })
    .await;
}

async fn until_expired(scene: &mut Scene<'_>, queue: &str, key: &str) {
    until(format!("expired messages go with {key}"), async || {
        expired(scene, queue).await == key
    })
    .await;
}

async fn api_is(scene: &Scene<'_>, up: u64) {
    let admin = scene.way.proxy.admin;
    until(format!("the API is read: {up}"), async || {
        admin.metric("dlx_proxy_management_up", &[]).await == up
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_s_key_is_added_to_an_argument_s_exchange() {
    each_queue(async |scene, _| {
        let (broker, vhost) = (&scene.way.broker, scene.way.vhost.clone());
        api_is(scene, 1).await;
        let queue = scene.queue("plain", &[]).await;
        let keyed = scene
            .queue("keyed", &[("x-dead-letter-routing-key", text("mine"))])
            .await;
        assert_eq!(rejected(scene, &queue).await, queue);
        assert_eq!(expired(scene, &queue).await, queue);

        // Its exchange is overruled by the argument, and so is its key where there is one.
        let policy = "[{<<\"dead-letter-exchange\">>, <<\"nowhere\">>}, {<<\"dead-letter-routing-key\">>, <<\"late\">>}]";
        broker.set_policy(&vhost, "keys", policy).await;
        until_expired(scene, &queue, "late").await;
        until_rejected(scene, &queue, "late").await;
        assert_eq!(rejected(scene, &keyed).await, "mine");
        assert_eq!(expired(scene, &keyed).await, "mine");

        broker.clear_policy(&vhost, "keys").await;
        until_expired(scene, &queue, &queue).await;
        until_rejected(scene, &queue, &queue).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_api_is_away_what_was_read_stays() {
    each_queue(async |scene, cable| {
        if scene.kind == Kind::Quorum || scene.way.mode == Mode::Keep {
            return; // the API does not know the difference
        }
        let (broker, vhost) = (&scene.way.broker, scene.way.vhost.clone());
        let policy = |key| format!("[{{<<\"dead-letter-routing-key\">>, <<\"{key}\">>}}]");
        broker.set_policy(&vhost, "keys", &policy("late")).await;
        let queue = scene.queue("away", &[]).await;
        until_rejected(scene, &queue, "late").await;
        cable.cut().await;
        api_is(scene, 0).await;
        broker.set_policy(&vhost, "keys", &policy("later")).await;
        until_expired(scene, &queue, "later").await; // the broker's own doing
        assert_eq!(rejected(scene, &queue).await, "late");
        assert!(scene.way.proxy.admin.is_ready().await);
        cable.plug_in().await;
        until_rejected(scene, &queue, "later").await;
        api_is(scene, 1).await;
        broker.clear_policy(&vhost, "keys").await;
    })
    .await;
}

/// With the bindings of the vhost it is dropped at once, as the broker does it; and only what has nowhere else to go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cycle_through_a_named_exchange_ends_where_the_broker_would_end_it() {
    each_queue(async |scene, cable| {
        if scene.way.mode == Mode::Keep {
            return; // the broker's own affair
        }
        // Catch-all policies of queues fit exchanges too, and say nothing about them.
        let policy = "[{<<\"max-length\">>, 100000}]";
        let (broker, vhost) = (&scene.way.broker, scene.way.vhost.clone());
        broker.set_policy(&vhost, "lengths", policy).await;
        let ring = format!("{}.ring", scene.kind);
        declare_exchange(scene, &ring).await;
        let target = ("x-dead-letter-exchange", text(&ring));
        let queue = scene.queue_with("round", &[target]).await;
        bind(scene, &queue, &ring).await;

        let admin = scene.way.proxy.admin;
        let ended = async |outcome: &str| {
            let labels = [
                format!("queue=\"{queue}\""),
                format!("outcome=\"{outcome}\""),
            ];
            let labels = labels.each_ref().map(String::as_str);
            admin
                .metric("dlx_proxy_messages_dead_lettered_total", &labels)
                .await
        };
        let soon = || BasicProperties::default().with_expiration("1".into());
        // Where the API is slow, surveys are too far apart to be waited for, and a message goes round once.
        until("one is dropped at once", async || {
            let (dropped, confirmed) = (ended("dropped").await, ended("confirmed").await);
            scene.publish(&queue, "body", soon()).await;
            until("it is dropped", async || {
                ended("dropped").await == dropped + 1
            })
            .await;
            ended("confirmed").await == confirmed
        })
        .await;

        // Somebody else wants them, too: nothing is dropped, and the copy that goes round ends one lap late.
        let direct = scene.way.connect_directly().await;
        let channel = within("a channel", direct.create_channel())
            .await
            .expect("a channel");
        let bound = channel.queue_bind(
            scene.graveyard.as_str().into(),
            ring.as_str().into(),
            "#".into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        within("queue.bind-ok", bound).await.expect("bound");
        scene.publish(&queue, "wanted", soon()).await;
        assert_eq!(scene.dead().await.data, b"wanted");
        within("closing", direct.close(200, "done".into()))
            .await
            .expect("closed");

        // The API away: one lap late, and nothing waits for it. This comes last: there is no survey for ten seconds after one that failed.
        if scene.kind == Kind::Classic {
            return;
        }
        cable.cut().await;
        let lone = format!("{}.lone", scene.kind);
        declare_exchange(scene, &lone).await;
        let target = ("x-dead-letter-exchange", text(&lone));
        let other = scene.queue_with("alone", &[target]).await;
        bind(scene, &other, &lone).await;
        scene.publish(&other, "body", soon()).await;
        let label = format!("queue=\"{other}\"");
        until("it is published", async || {
            let labels = [label.as_str(), "outcome=\"confirmed\""];
            admin
                .metric("dlx_proxy_messages_dead_lettered_total", &labels)
                .await
                == 1
        })
        .await;
        cable.plug_in().await;
        broker.clear_policy(&vhost, "lengths").await;
    })
    .await;
}

async fn declare_exchange(scene: &Scene<'_>, exchange: &str) {
    let declared = scene.channel.exchange_declare(
        exchange.into(),
        ExchangeKind::Topic,
        ExchangeDeclareOptions::default(),
        FieldTable::default(),
    );
    within("exchange.declare-ok", declared)
        .await
        .expect("declared");
}

async fn bind(scene: &Scene<'_>, queue: &str, exchange: &str) {
    let bound = scene.channel.queue_bind(
        queue.into(),
        exchange.into(),
        "#".into(),
        QueueBindOptions::default(),
        FieldTable::default(),
    );
    within("queue.bind-ok", bound).await.expect("bound");
}
