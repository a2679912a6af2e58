//! Memory alarms: `connection.blocked` and `unblocked` come as from the broker, to those clients that announced that they know them.

use dlx_proxy::amqp::method::{MethodId, Tune};
use dlx_proxy::amqp::table::TableBuilder;
use dlx_proxy::registry::policy::Mode;
use futures::future::join_all;

use super::heartbeats;
use super::lab::{Way, each_alone, until};
use super::raw::{self, Raw};

/// Of those who come under an alarm: it lasts for more than two of these.
const HEARTBEAT: u16 = 4;

/// Arguments of the methods that came on channel 0.
type Heard = Vec<Vec<u8>>;

/// Clients at one port.
struct Stage<'a> {
    way: &'a Way,
    port: u16,
    /// Announced the capability, and publishes.
    knowing: Raw,
    /// Publishes too.
    unknowing: Raw,
    /// Announced the capability, and consumes.
    consuming: Raw,
    heard: Heard,
}

/// Properties of a client that knows `connection.blocked`, or says that it does not.
fn properties(knows: bool) -> Vec<u8> {
    let mut capabilities = TableBuilder::default();
    capabilities.boolean(b"connection.blocked", knows);
    let mut properties = TableBuilder::default();
    properties.table(b"capabilities", &capabilities);
    properties.finish()
}

async fn publish(client: &mut Raw, queue: &str) {
    let mut out = Vec::new();
    raw::publish(&mut out, 1, queue, b"body", client.tune.frame_max);
    client.send(&out).await;
}

impl<'a> Stage<'a> {
    async fn open(way: &'a Way, port: u16, queue: &str) -> Stage<'a> {
        let mut stage = Stage {
            way,
            port,
            knowing: client(way, port, true, 0).await,
            unknowing: client(way, port, false, 0).await,
            consuming: client(way, port, true, 0).await,
            heard: Vec::new(),
        };
        stage.consuming.declare(1, queue, &[]).await;
        stage.consuming.consume(1, queue, true).await;
        stage
    }

    /// While there is an alarm: what those hear that know it, also somebody who comes late. Whoever consumes goes on.
    async fn under_alarm(&mut self, queue: &str) -> Raw {
        publish(&mut self.unknowing, queue).await;
        publish(&mut self.knowing, queue).await;
        self.heard
            .push(self.knowing.reply(0, MethodId::CONNECTION_BLOCKED).await);
        // Its probe stays without an answer until the alarm has passed.
        let mut declare = Vec::new();
        let source = format!("{queue}.source");
        raw::declare(&mut declare, 1, &source, &[("x-dead-letter-exchange", "")]);
        self.knowing.send(&declare).await;
        let mut late = client(self.way, self.port, true, HEARTBEAT).await;
        publish(&mut late, queue).await;
        self.heard
            .push(late.reply(0, MethodId::CONNECTION_BLOCKED).await);
        self.consuming.open_channel(2).await;
        // The broker does not read what it says, and knows that it does not.
        heartbeats::idle(&mut late, 5).await;
        late
    }

    /// Afterwards: all that was published is carried out, and nobody hears what is not for him.
    async fn relieved(mut self, mut late: Raw) -> Heard {
        for client in [&mut late, &mut self.knowing] {
            self.heard
                .push(client.reply(0, MethodId::CONNECTION_UNBLOCKED).await);
        }
        self.knowing.reply(1, MethodId::QUEUE_DECLARE_OK).await;
        // `open_channel` fails when something came on channel 0 before.
        for mut client in [late, self.knowing, self.unknowing] {
            client.open_channel(3).await;
            client.close().await;
        }
        for _ in 0..3 {
            self.consuming.content(1, MethodId::BASIC_DELIVER).await;
        }
        self.consuming.open_channel(3).await;
        self.consuming.close().await;
        self.heard
    }
}

/// With a channel. `knows`: announces the capability.
async fn client(way: &Way, port: u16, knows: bool, heartbeat: u16) -> Raw {
    let tune = Tune {
        heartbeat,
        ..Tune::default()
    };
    let properties = properties(knows);
    let mut client = Raw::open_as(&way.broker, port, &way.vhost, tune, &properties).await;
    client.open_channel(1).await;
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_hear_of_an_alarm_as_from_the_broker() {
    each_alone(&[Mode::Full], async |way| {
        let ports = [way.broker.uri.authority.port, way.proxy.address.port()];
        let queues = ["direct", "proxied"];
        let mut stages = Vec::new();
        for (port, queue) in ports.into_iter().zip(queues) {
            stages.push(Stage::open(way, port, queue).await);
        }
        let mut late = Vec::new();
        let alarm = async {
            until("the alarm", async || {
                let alarms = way.broker.eval("rabbit_alarm:get_alarms().").await;
                alarms.contains("memory")
            })
            .await;
            let both = stages.iter_mut().zip(queues);
            late = join_all(both.map(|(stage, queue)| stage.under_alarm(queue))).await;
        };
        way.broker.under_memory_alarm(alarm).await;
        let mut heard = Vec::new();
        for (stage, late) in stages.into_iter().zip(late) {
            heard.push(stage.relieved(late).await);
        }
        assert_eq!(heard[1], heard[0]);
        assert!(heard[0][0].ends_with(b"low on memory"), "{:?}", heard[0]);
    })
    .await;
}
