//! No broker behind the proxy when it starts; and a vhost in which the proxy's own user has no rights.

use dlx_proxy::amqp::frame::PROTOCOL;
use dlx_proxy::amqp::method::MethodId;
use dlx_proxy::registry::policy::Mode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::lab::{each_broker, until, within};
use super::node::Broker;
use super::program::Program;
use super::proxy::Proxy;
use super::raw::{Raw, TO_DEAD};
use super::relay::{Fault, INTAKE, Relay};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_comes_later() {
    each_broker(async |broker, vhost| {
        let mut relay = Relay::new(broker.address()).await;
        let upstream = broker.upstream(relay.port(), &broker.credentials());
        let proxy = Proxy::start(&upstream, Mode::Full, vhost, &[]).await;
        // Twice: away at start, and away again.
        for _ in 0..2 {
            // Each link notices for itself.
            until("both links are missed", async || {
                let (status, reasons) = proxy.admin.get("/readyz").await;
                status == 503
                    && reasons.contains("publisher link")
                    && reasons.contains("intake link")
            })
            .await;
            assert_eq!(proxy.admin.get("/healthz").await.0, 200);
            let mut refused = within("accepting", TcpStream::connect(proxy.address))
                .await
                .expect("it listens");
            // In AMQP the client speaks first.
            refused.write_all(&PROTOCOL).await.expect("it listens");
            let mut said = Vec::new();
            let end = refused.read_to_end(&mut said);
            let quickly = tokio::time::timeout(std::time::Duration::from_secs(3), end).await;
            assert!(quickly.is_ok(), "the client still waits");
            assert!(said.is_empty(), "{said:?}");

            relay.plug_in().await;
            until("ready", async || proxy.admin.is_ready().await).await;
            reject_one(broker, proxy.address.port(), vhost).await;
            relay.cut().await;
        }
        proxy.stop().await;
    })
    .await;
}

/// A message is rejected, and its dead letter arrives.
async fn reject_one(broker: &Broker, port: u16, vhost: &str) {
    let mut client = Raw::open(broker, port, vhost, Default::default()).await;
    client.open_channel(1).await;
    client.declare(1, "dead", &[]).await;
    client.declare(1, "work", &TO_DEAD).await;
    client.consume(1, "dead", true).await;
    client.deliver(1, "work", b"body").await;
    client.reject(1, 1).await;
    client.content(1, MethodId::BASIC_DELIVER).await;
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vhost_without_rights_for_the_proxy_stays_native() {
    each_broker(async |broker, vhost| {
        // The administrator may use the vhost; this user, as whom the proxy logs in, exists, but has no rights in it.
        let user = broker.make_user(vhost).await;
        let upstream = broker.upstream(broker.uri.authority.port, &format!("{user}:secret"));
        let wanted = [("DLX_PROXY_READY_WHEN_REFUSED", "true")];
        let program = Program::start_with(&upstream, vhost, &wanted).await;
        until("it says so", async || {
            program
                .admin
                .metric("dlx_proxy_vhost_native", &[vhost])
                .await
                == 1
        })
        .await;
        until("it is ready: somebody wants that", async || {
            program.admin.is_ready().await
        })
        .await;

        for _ in 0..2 {
            reject_one(broker, program.address.port(), vhost).await;
            program.has_lines(1, &["queues stay native"]).await;
        }
        let names = format!(
            "[Name || {{resource, <<\"{vhost}\">>, exchange, Name}} <- rabbit_exchange:list_names()]."
        );
        let exchanges = broker.eval(&names).await;
        assert!(exchanges.contains("amq.direct"), "{exchanges}");
        assert!(!exchanges.contains("dlx-proxy"), "{exchanges}");
        program.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_was_taken_over_can_be_declared_again_while_the_intake_is_away() {
    each_broker(async |broker, vhost| {
        let mut relay = Relay::new(broker.address()).await;
        relay.plug_in().await;
        let upstream = broker.upstream(relay.port(), &broker.credentials());
        let proxy = Proxy::start(&upstream, Mode::Full, vhost, &[("probe-timeout", "1s")]).await;
        until("ready", async || proxy.admin.is_ready().await).await;
        for fault in [Fault::None, Fault::Cut(INTAKE), Fault::Jam(INTAKE)] {
            relay.set(fault);
            if let Fault::Cut(_) = fault {
                until("the intake is away", async || !proxy.admin.is_ready().await).await;
            }
            // Any client that starts declares its queues.
            let mut client =
                Raw::open(broker, proxy.address.port(), vhost, Default::default()).await;
            client.open_channel(1).await;
            client
                .declare(1, "work", &[("x-dead-letter-exchange", "dlx")])
                .await;
            client.close().await;
        }
        relay.set(Fault::None);
        proxy.stop().await;
    })
    .await;
}
