//! What waits for a retry, in delay queues that the management API tells.

use bytes::Bytes;
use dlx_proxy::amqp::ids::{ShortStr, Vhost};
use dlx_proxy::connection::Access;
use dlx_proxy::management::Api;
use dlx_proxy::net;
use dlx_proxy::net::nodes::Node;
use dlx_proxy::net::proxy_protocol::Told;
use dlx_proxy::objects::Names;
use dlx_proxy::registry::policy::Mode;
use dlx_proxy::retries::{self, Place, Wanted};
use lapin::BasicProperties;
use lapin::options::BasicNackOptions;
use lapin::types::AMQPValue;
use serde_json::Value;

use super::lab::{self, Way, until, within};
use super::scene::{Kind, Scene, consume, get, next};

/// The broker behind that proxy, as its own settings would say it.
fn place(way: &Way) -> Place {
    let authority = way.broker.uri.authority.clone();
    let (credentials, address) = way.broker.management();
    let (user, password) = credentials.split_once(':').expect("both");
    let (host, port) = address.rsplit_once(':').expect("both");
    Place {
        nodes: vec![Node {
            host: authority.host,
            port: authority.port,
        }],
        access: Access {
            user: ShortStr::new(authority.userinfo.username).expect("short"),
            password: authority.userinfo.password,
            way: net::dial::Way {
                tls: None,
                told: Told::Off,
            },
        },
        vhosts: vec![Vhost::new(way.vhost.clone()).expect("short")],
        names: Names::default(),
        management: Some(Api {
            tls: None,
            host: host.to_owned(),
            port: port.parse().expect("a port"),
            path: String::new(),
            user: Bytes::copy_from_slice(user.as_bytes()),
            password: Bytes::copy_from_slice(password.as_bytes()),
        }),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_management_api_tells_the_delay_queues() {
    lab::each(&[Mode::Takeover], async |way| {
        let scene = Scene::open(way, Kind::Classic).await;
        let place = place(way);
        let minutes = ("x-delayed-retry-min", AMQPValue::LongInt(600_000));
        let queue = scene.queue("waits", &[minutes]).await;
        scene
            .publish(&queue, "body", BasicProperties::default())
            .await;
        let returned = get(&scene.channel, &queue).await;
        let requeue = BasicNackOptions {
            requeue: true,
            multiple: false,
        };
        within("basic.nack", returned.nack(requeue))
            .await
            .expect("sent");

        let mut listed = Value::Null;
        until("it is listed", async || {
            let listing = retries::list(&place, &[], 10).await.expect("listed");
            listed = serde_json::from_str(&listing.json()).expect("JSON");
            listed["vhosts"][0]["queues"][0]["messages"] == 1
                && listed["vhosts"][0]["delay-queues"][0]["leaving"] == 0
        })
        .await;
        let of_vhost = &listed["vhosts"][0];
        assert_eq!(
            of_vhost["delay-queues"].as_array().map(Vec::len),
            Some(1),
            "{listed}"
        );
        let delay = &of_vhost["delay-queues"][0];
        assert_eq!(delay["queue"], "dlx-proxy.delay.600000", "{listed}");
        assert_eq!(delay["has-delivery-limit"], false, "{listed}");
        assert_eq!(of_vhost["queues"][0]["queue"], queue.as_str(), "{listed}");
        assert_eq!(of_vhost["intake"]["proxies"], 1, "{listed}");

        let releases = retries::release(&place, &Wanted::default()).await;
        assert!(
            releases
                .expect("released")
                .text()
                .contains("\n1 released\n")
        );
        let mut back = consume(&scene.channel, &queue, true).await;
        assert!(next(&mut back).await.redelivered);
        within("closing", scene.connection.close(200, "done".into()))
            .await
            .expect("closed in order");
    })
    .await;
}
