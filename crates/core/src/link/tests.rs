//! The link alone: a machine that opens no channel.

use std::time::Duration;

use super::*;
use crate::amqp::ids::name;
use crate::amqp::table::{Table, Value};
use crate::machine::{Leg, Machine};

pub(crate) mod peer;

use self::peer::{Rig, close, open_ok, start, tune};

/// A minimal machine around a link.
struct Bare {
    link: Link,
    losses: Vec<Loss>,
    ups: usize,
}

impl Linked for Bare {
    type Input = ();
    type Output = ();

    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn up(&mut self, _: Now, _: &mut Effects<()>) {
        self.ups += 1;
    }

    fn frame(&mut self, _: Frame<'_>, _: Now, _: &mut Effects<()>) -> Result<(), &'static str> {
        Ok(())
    }

    fn lost(&mut self, loss: Loss, _: Now, _: &mut Effects<()>) {
        self.losses.push(loss);
    }

    fn told(&mut self, (): (), _: Now, _: &mut Effects<()>) {}

    fn ends(&mut self, now: Now, fx: &mut Effects<()>) {
        self.link.goodbye(now, fx);
    }

    fn due(&mut self, _: Now, _: &mut Effects<()>) {}

    fn wake(&self) -> Option<Mono> {
        None
    }

    fn after(&mut self, _: Now, _: &mut Effects<()>) {}
}

fn rig() -> Rig<Bare> {
    let login = Login {
        vhost: name("orders"),
        user: name("proxy"),
        password: Bytes::from_static(b"secret"),
        seed: 7,
    };
    Rig::new(Bare {
        link: Link::new(Role::Publisher, login),
        losses: Vec::new(),
        ups: 0,
    })
}

fn wait(rig: &Rig<Bare>) -> Duration {
    let Flow::Reconnect(at) = rig.machine.flow() else {
        panic!("no reconnect: {:?}", rig.machine.flow());
    };
    rig.now.mono.until(at)
}

fn cut(rig: &mut Rig<Bare>) {
    rig.machine.closed(Leg::Broker, rig.now, &mut rig.fx);
}

#[test]
fn a_port_that_speaks_tls_is_told_apart() {
    let mut rig = rig();
    rig.machine.connected(Leg::Broker, rig.now, &mut rig.fx);
    rig.broker(b"\x15\x03\x03\x00\x02\x02\x0a");
    let said = format!("{:?}", rig.events());
    assert!(
        said.contains("the broker speaks TLS at this port"),
        "{said}"
    );
    assert_eq!(rig.machine.losses, [Loss::Lost]);
}

#[test]
fn says_who_it_is_and_opens_its_vhost() {
    let mut rig = rig();
    assert_eq!(rig.machine.flow(), Flow::Reconnect(Mono(0)));
    rig.machine.connected(Leg::Broker, rig.now, &mut rig.fx);
    rig.fx.broker.finish().0.clear();
    rig.broker(&start("3.10.8"));
    let sent = rig.sent();
    let ok = crate::amqp::method::StartOk::parse(&sent[0].payload).unwrap();
    assert_eq!(ok.response, b"\0proxy\0secret");
    let properties = Table(ok.client_properties);
    let connection_name = properties.get(b"connection_name").unwrap().unwrap();
    assert_eq!(
        connection_name.as_longstr().unwrap(),
        b"dlx-proxy publisher orders"
    );
    let capabilities = properties.get(b"capabilities").unwrap();
    let capabilities = capabilities.and_then(Value::as_table).unwrap();
    assert!(
        capabilities
            .get(b"authentication_failure_close")
            .unwrap()
            .is_some()
    );

    rig.broker(&tune(0, 0, 600));
    let sent = rig.sent();
    let agreed = Tune {
        channel_max: u16::MAX,
        frame_max: 1 << 20,
        heartbeat: 30,
    };
    assert_eq!(Tune::parse(&sent[0].payload), Ok(agreed));
    assert_eq!(
        crate::amqp::method::Open::parse(&sent[1].payload)
            .unwrap()
            .vhost,
        b"orders"
    );
    rig.broker(&open_ok());
    assert_eq!(rig.machine.ups, 1);
    assert_eq!(rig.machine.link.dialect(), Dialect::V3);
    assert_eq!(
        rig.events(),
        [Event::LinkUp {
            role: Role::Publisher,
            version: Bytes::from_static(b"3.10.8")
        }]
    );
}

#[test]
fn a_password_is_not_printed() {
    let rig = rig();
    assert!(!format!("{:?}", rig.machine.link).contains("secret"));
}

#[test]
fn backs_off_and_says_it_once() {
    let mut rig = rig();
    let mut longest = Duration::ZERO;
    for _ in 0..12 {
        cut(&mut rig);
        longest = longest.max(wait(&rig));
        assert!(wait(&rig) >= Duration::from_millis(75));
    }
    assert!(longest > Duration::from_secs(3) && longest <= Duration::from_secs(4));
    assert_eq!(rig.events().len(), 1);
    rig.up("4.3.6");
    assert!(matches!(rig.events()[..], [Event::LinkUp { .. }]));
    // Up for a moment only: the wait goes on growing. Up for long: it begins anew.
    cut(&mut rig);
    assert!(wait(&rig) >= Duration::from_secs(3));
    rig.up("4.3.6");
    rig.pass(10_000);
    cut(&mut rig);
    assert!(wait(&rig) <= Duration::from_millis(100));
}

#[test]
fn beats_and_notices_silence() {
    let mut rig = rig();
    rig.up("4.3.6");
    rig.pass(14_000);
    assert!(rig.fx.broker.is_empty());
    rig.pass(2_000);
    assert_eq!(rig.fx.broker.finish().0.split_off(0), frame::HEARTBEAT);
    rig.broker(&frame::HEARTBEAT);
    rig.pass(59_000);
    assert_eq!(rig.machine.losses, []);
    rig.pass(2_000);
    assert_eq!(rig.machine.losses, [Loss::Lost]);
}

#[test]
fn a_vhost_that_refuses_us_stays_native() {
    let mut rig = rig();
    for most in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs) {
        rig.machine.connected(Leg::Broker, rig.now, &mut rig.fx);
        rig.broker(&start("4.3.6"));
        rig.broker(&tune(2047, 131_072, 60));
        rig.broker(&close(
            0,
            530,
            "NOT_ALLOWED - access to vhost 'orders' refused for user 'proxy'",
            MethodId::CONNECTION_OPEN,
        ));
        // Many proxies do not come at once.
        let waits = most * 3 / 4..=most;
        assert!(waits.contains(&wait(&rig)), "{:?}", wait(&rig));
    }
    assert!(matches!(rig.events()[..], [Event::VhostNative { .. }]));
    rig.fx.broker.finish().0.clear();
    rig.up("4.3.6");
    assert!(matches!(rig.events()[..], [Event::LinkUp { .. }]));
}

#[test]
fn a_broker_that_is_too_old_is_left_alone() {
    let mut rig = rig();
    rig.machine.connected(Leg::Broker, rig.now, &mut rig.fx);
    rig.broker(&start("3.9.29"));
    assert!(wait(&rig) <= Duration::from_secs(1));
    let [Event::VhostNative { cause }] = &rig.events()[..] else {
        panic!("not native");
    };
    assert_eq!(cause, "RabbitMQ 3.9.29 is older than 3.10");
}

#[test]
fn a_slow_handshake_is_given_up() {
    let mut rig = rig();
    rig.machine.connected(Leg::Broker, rig.now, &mut rig.fx);
    rig.broker(&start("4.3.6"));
    rig.pass(9_999);
    assert_eq!(rig.machine.flow(), Flow::Open);
    rig.pass(1);
    assert_eq!(rig.machine.losses, [Loss::Lost]);
}

#[test]
fn tells_our_faults_from_an_operators_hand() {
    for (code, loss) in [
        (320, Loss::Lost),
        (501, Loss::Fault(501, MethodId::BASIC_PUBLISH)),
        (530, Loss::Fault(530, MethodId::BASIC_PUBLISH)),
    ] {
        let mut rig = rig();
        rig.up("4.3.6");
        rig.broker(&close(0, code, "", MethodId::BASIC_PUBLISH));
        assert_eq!(rig.machine.losses, [loss]);
        assert_eq!(rig.methods(), [(0, MethodId::CONNECTION_CLOSE_OK)]);
    }
}

#[test]
fn frames_may_be_large_but_not_endless() {
    let mut rig = rig();
    rig.up("4.3.6");
    let mut large = vec![3, 0, 1];
    large.extend_from_slice(&(15u32 << 20).to_be_bytes());
    let taken = rig.machine.read(Leg::Broker, &large, rig.now, &mut rig.fx);
    assert_eq!((taken, rig.machine.losses.len()), (0, 0));
    large[3] = 0x7F;
    rig.broker(&large);
    assert_eq!(rig.machine.losses, [Loss::Lost]);
}

#[test]
fn says_goodbye_when_drained() {
    let mut rig = rig();
    rig.up("4.3.6");
    rig.drain();
    assert_eq!(rig.methods(), [(0, MethodId::CONNECTION_CLOSE)]);
    assert_eq!(rig.machine.flow(), Flow::Open);
    rig.pass(2_000);
    assert_eq!(rig.machine.flow(), Flow::Finish);
}
