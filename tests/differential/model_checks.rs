//! What the model does that no scenario can show: faults, alarms, restarts, jobs in any order. Named `instrument::model-…`; no broker.

use super::checks::{Check, equal};
use super::methods::{Arg, Args, BODY, Method};
use super::model::{Broker, Conn, Fact, Options, TimeoutResponse, Why};
use super::proxy::Proxy;
use super::stand_in::StandIn;
use super::value::{Bytes, Fallible, Table, Value, number, take};
use super::wire;

/// Any.
const NOW: u64 = 1_000_000;

pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("model-loses-a-confirm", a_confirm_is_lost),
    ("model-nacks", a_nack_takes_the_message_away),
    ("model-alarm", an_alarm_stops_who_publishes),
    ("model-restart", a_restart_keeps_what_is_durable),
    (
        "model-jobs-have-lanes",
        lanes_have_no_order_among_each_other,
    ),
    ("model-takes-any-pieces", bytes_may_be_cut_anywhere),
    ("model-vanished-client", what_a_client_had_returns),
    ("model-consumer-timeout", a_consumer_times_out),
    ("model-behind-the-proxy", the_proxy_ends_and_starts_again),
];

/// A client that knows what it wants.
struct Client {
    conn: Conn,
}

fn text(text: &str) -> Arg {
    Arg::Text(text.as_bytes().to_vec())
}

fn bytes(channel: u16, name: &str, args: &Args) -> Bytes {
    let method = Method::named(name).expect("in the table");
    wire::method(channel, method, args, usize::MAX)
}

fn handshake(knows_cancel: bool) -> Bytes {
    let mut out = b"AMQP\0\0\x09\x01".to_vec();
    let table = |name: &str, value: Value| Table {
        fields: vec![(name.as_bytes().to_vec(), value)],
        rest: Bytes::new(),
    };
    let capabilities = table("consumer_cancel_notify", Value::Bool(knows_cancel));
    let properties = table("capabilities", Value::Table(capabilities));
    let start_ok = vec![
        ("client-properties", Arg::Table(properties)),
        ("mechanism", text("PLAIN")),
        ("response", text("\0guest\0guest")),
    ];
    out.extend(bytes(0, "connection.start-ok", &start_ok));
    let tune_ok = vec![
        ("channel-max", Arg::Number(2047)),
        ("frame-max", Arg::Number(131_072)),
    ];
    out.extend(bytes(0, "connection.tune-ok", &tune_ok));
    let open = vec![("virtual-host", text("/"))];
    out.extend(bytes(0, "connection.open", &open));
    out.extend(bytes(1, "channel.open", &Args::new()));
    out
}

/// With a durable queue `q`, and confirms.
fn beginning(broker: &mut Broker) -> Client {
    beginning_as(broker, true)
}

/// The same of a client that knows `basic.cancel`, or not.
fn beginning_as(broker: &mut Broker, knows_cancel: bool) -> Client {
    let client = Client {
        conn: broker.connect(),
    };
    broker.read(client.conn, &handshake(knows_cancel), NOW);
    client.send(broker, "confirm.select", Args::new());
    let declare = vec![("queue", text("q")), ("durable", Arg::Bit(true))];
    client.send(broker, "queue.declare", declare);
    client.said(broker);
    client
}

impl Client {
    fn send(&self, broker: &mut Broker, name: &str, args: Args) -> bool {
        let bytes = bytes(1, name, &args);
        broker.read(self.conn, &bytes, NOW) == bytes.len()
    }

    fn publish(&self, broker: &mut Broker, body: &str, mode: u64) -> bool {
        let args = vec![
            ("routing-key", text("q")),
            ("delivery-mode", Arg::Number(mode)),
            (BODY, text(body)),
        ];
        self.send(broker, "basic.publish", args)
    }

    /// Names of the methods that came since.
    fn said(&self, broker: &mut Broker) -> Vec<String> {
        let out: Bytes = broker.output(self.conn).drain(..).collect();
        let mut rest = &out[..];
        let mut names = Vec::new();
        while let Some(kind) = number(&mut rest, 1) {
            take(&mut rest, 2);
            let size = number(&mut rest, 4).unwrap_or(0) as usize;
            let payload = take(&mut rest, size).unwrap_or_default();
            take(&mut rest, 1);
            if let (1, Some(method)) = (kind, Method::of(payload)) {
                names.push(method.name.clone());
            }
        }
        names
    }
}

fn bodies(broker: &Broker) -> String {
    let messages = broker.queue("q").unwrap_or_default();
    let bodies = messages
        .iter()
        .map(|of| String::from_utf8_lossy(&of.body).into_owned());
    bodies.collect::<Vec<_>>().join(" ")
}

fn a_confirm_is_lost() -> Fallible<()> {
    let mut broker = Broker::new(Options::default());
    let client = beginning(&mut broker);
    client.publish(&mut broker, "one", 2);
    equal("jobs", broker.jobs(), 1)?;
    equal("lost", broker.lose(0), true)?;
    broker.run_all(NOW);
    equal("said", client.said(&mut broker), Vec::new())?;
    equal("in the queue", bodies(&broker), "one".to_owned())
}

fn a_nack_takes_the_message_away() -> Fallible<()> {
    let mut broker = Broker::new(Options::default());
    let client = beginning(&mut broker);
    client.publish(&mut broker, "one", 2);
    client.publish(&mut broker, "two", 2);
    equal("nacked", broker.nack(0, NOW), true)?;
    broker.run_all(NOW);
    let said = client.said(&mut broker);
    equal("said", said.join(" "), "basic.nack basic.ack".to_owned())?;
    equal("in the queue", bodies(&broker), "two".to_owned())
}

fn an_alarm_stops_who_publishes() -> Fallible<()> {
    let mut broker = Broker::new(Options::default());
    let client = beginning(&mut broker);
    broker.alarm(true);
    let declare = vec![("queue", text("q")), ("passive", Arg::Bit(true))];
    let other = client.send(&mut broker, "queue.declare", declare);
    equal("who does not publish is read", other, true)?;
    let whole = client.publish(&mut broker, "one", 2);
    equal("a publish is read as a whole", whole, false)?;
    equal("blocked", broker.is_blocked(client.conn), true)?;
    broker.alarm(false);
    equal("blocked", broker.is_blocked(client.conn), false)
}

fn a_restart_keeps_what_is_durable() -> Fallible<()> {
    let mut broker = Broker::new(Options::default());
    let client = beginning(&mut broker);
    client.publish(&mut broker, "durable", 2);
    client.publish(&mut broker, "transient", 1);
    let declare = vec![("queue", text("r")), ("exclusive", Arg::Bit(true))];
    client.send(&mut broker, "queue.declare", declare);
    broker.restart(NOW);
    equal("closed", broker.is_closed(client.conn), true)?;
    equal("in the queue", bodies(&broker), "durable".to_owned())?;
    equal("the other queue", broker.queue("r").is_none(), true)?;
    let is_lost = |fact: &Fact| {
        matches!(fact, Fact::Dropped { queue, body, why: Why::Restarted, .. }
            if queue == b"q" && body == b"transient")
    };
    equal("it is told", broker.facts().iter().any(is_lost), true)
}

fn lanes_have_no_order_among_each_other() -> Fallible<()> {
    let mut broker = Broker::new(Options::default());
    let client = beginning(&mut broker);
    let consume = vec![("queue", text("q")), ("consumer-tag", text("c"))];
    client.send(&mut broker, "basic.consume", consume);
    client.publish(&mut broker, "one", 2);
    // The consumer's, and the publisher's.
    equal("jobs", broker.jobs(), 2)?;
    broker.run(1, NOW);
    broker.run_all(NOW);
    let said = client.said(&mut broker).join(" ");
    let wanted = "basic.ack basic.consume-ok basic.deliver";
    equal("said", said, wanted.to_owned())
}

fn bytes_may_be_cut_anywhere() -> Fallible<()> {
    let mut broker = Broker::new(Options::default());
    let client = Client {
        conn: broker.connect(),
    };
    for octet in handshake(true) {
        broker.read(client.conn, &[octet], NOW);
    }
    let said = client.said(&mut broker).join(" ");
    let wanted = "connection.start connection.tune connection.open-ok channel.open-ok";
    equal("said", said, wanted.to_owned())
}

fn what_a_client_had_returns() -> Fallible<()> {
    let mut broker = Broker::new(Options::default());
    let client = beginning(&mut broker);
    client.publish(&mut broker, "one", 2);
    client.send(&mut broker, "basic.get", vec![("queue", text("q"))]);
    let held = |broker: &Broker| {
        let messages = broker.queue("q").unwrap_or_default();
        messages.iter().filter(|of| of.holder.is_some()).count()
    };
    equal("held", held(&broker), 1)?;
    broker.hang_up(client.conn, NOW);
    equal("held", held(&broker), 0)?;
    let messages = broker.queue("q").unwrap_or_default();
    equal("redelivered", messages[0].redelivered, true)
}

/// As `consumer_timeout_response` of 4.3.7 says, and as the client knows.
fn a_consumer_times_out() -> Fallible<()> {
    let consume = || vec![("queue", text("q")), ("consumer-tag", text("c"))];
    for (response, knows, wanted) in [
        (TimeoutResponse::NotifyConsumer, true, "basic.cancel"),
        (TimeoutResponse::NotifyConsumer, false, "channel.close"),
        (TimeoutResponse::CloseChannel, true, "channel.close"),
        (TimeoutResponse::CloseChannel, false, "channel.close"),
    ] {
        let mut broker = Broker::new(Options::default());
        let client = beginning_as(&mut broker, knows);
        client.publish(&mut broker, "one", 2);
        client.send(&mut broker, "basic.consume", consume());
        broker.run_all(NOW);
        client.said(&mut broker);
        let is_held = |broker: &Broker| broker.queue("q").unwrap_or_default()[0].holder.is_some();
        equal("held", is_held(&broker), true)?;
        let timed_out = broker.consumer_times_out(client.conn, 1, "c", response);
        equal("there is such a consumer", timed_out, true)?;
        broker.run_all(NOW);
        equal(
            "said",
            client.said(&mut broker).join(" "),
            wanted.to_owned(),
        )?;
        equal("held", is_held(&broker), false)?;
        if wanted == "basic.cancel" {
            client.send(
                &mut broker,
                "basic.ack",
                vec![("delivery-tag", Arg::Number(1))],
            );
            equal("a late ack", client.said(&mut broker), Vec::new())?;
            equal("in the queue", bodies(&broker), "one".to_owned())?;
            client.send(&mut broker, "basic.consume", consume());
            let said = client.said(&mut broker).join(" ");
            equal("the name again", said, "connection.close".to_owned())?;
        }
    }
    Ok(())
}

fn the_proxy_ends_and_starts_again() -> Fallible<()> {
    let model = StandIn::start("/", "4.3.6", None)?;
    let upstream = format!("amqp://guest:guest@{}", model.address);
    let settings = [("mode".to_owned(), "rejects-only".to_owned())];
    let policy = "[[policy]]\nname = \"p\"\npattern = \"^q$\"\nmode = \"full\"\n";
    let proxy = Proxy::start(&upstream, "/", &settings, policy)?;
    proxy.stop()?;
    proxy.resume()?;
    proxy.stop()
}
