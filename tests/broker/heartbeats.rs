//! Heartbeats are end to end: the broker hears the client and the client the broker, and a client that has died is dropped as it would be
//! without the proxy. Only while the proxy itself holds a client back does it speak for that client.

use std::time::Duration;

use dlx_proxy::amqp::frame;
use dlx_proxy::amqp::method::{MethodId, Tune};
use dlx_proxy::registry::policy::Mode;
use tokio::time::{Instant, timeout};

use super::lab::{each, each_broker, until, within};
use super::proxy::Proxy;
use super::raw::{self, Raw, TO_DEAD};
use super::relay::{Fault, PUBLISHER, Relay};

const EVERY_SECOND: Tune = Tune {
    channel_max: 0,
    frame_max: 0,
    heartbeat: 1,
};
const HALF: Duration = Duration::from_millis(500);

/// Sends and reads heartbeats, as an idle client does, until that many have come.
pub(crate) async fn idle(client: &mut Raw, heartbeats: usize) {
    let enough = client.connection.heartbeats + heartbeats;
    while client.connection.heartbeats < enough {
        client.send(&frame::HEARTBEAT).await;
        let end = Instant::now() + HALF;
        if let Ok(frame) = timeout(end - Instant::now(), client.read()).await {
            assert!(frame.is_none(), "nothing was asked for: {frame:?}");
            unreachable!(
                "the connection was closed after {} heartbeats",
                client.connection.heartbeats
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_died_is_dropped() {
    each(&[Mode::Full], async |way| {
        let mut client = Raw::open(
            &way.broker,
            way.proxy.address.port(),
            &way.vhost,
            EVERY_SECOND,
        )
        .await;
        let end = within("the end of the connection", client.read()).await;
        assert!(end.is_none(), "nothing was asked for: {end:?}");
        assert!(client.connection.heartbeats > 0);
    })
    .await;
}

/// First it is only idle, and the heartbeats are the broker's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_idle_or_held_back_stays() {
    each_broker(async |broker, vhost| {
        let mut relay = Relay::new(broker.address()).await;
        relay.plug_in().await;
        let upstream = broker.upstream(relay.port(), &broker.credentials());
        let settings = [("close-wait", "30s"), ("confirm-timeout", "30s")];
        let proxy = Proxy::start(&upstream, Mode::Full, vhost, &settings).await;
        until("the proxy is ready", async || proxy.admin.is_ready().await).await;

        let mut client = Raw::open(broker, proxy.address.port(), vhost, EVERY_SECOND).await;
        // Five seconds each: a broker drops a client that is silent for two or three of its intervals, and sends a heartbeat every half one.
        idle(&mut client, 10).await;
        client.open_channel(1).await;
        client.declare(1, "dead", &[]).await;
        client.declare(1, "work", &TO_DEAD).await;
        client.deliver(1, "work", b"body").await;

        relay.set(Fault::Jam(PUBLISHER));
        let mut out = Vec::new();
        raw::reject(&mut out, 1, 1);
        raw::close_channel(&mut out, 1);
        client.send(&out).await;
        until("the reject is withheld", async || {
            proxy.admin.metric("dlx_proxy_withheld_rejects", &[]).await == 1
        })
        .await;
        idle(&mut client, 10).await;
        relay.set(Fault::None);
        client.reply(1, MethodId::CHANNEL_CLOSE_OK).await;

        client.open_channel(2).await;
        client.consume(2, "dead", true).await;
        let (_, body) = client.content(2, MethodId::BASIC_DELIVER).await;
        assert_eq!(body, b"body");
        client.close().await;
        proxy.stop().await;
    })
    .await;
}
