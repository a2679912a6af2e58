//! The link alone, `testdata/*.txt`: a machine that opens no channel.

use super::*;
use crate::amqp::ids::name;
use crate::machine::{Leg, Machine};

pub(crate) mod peer;
pub(crate) mod script;

use self::peer::Rig;
use self::script::{Script, Words, check};

/// A minimal machine around a link: says what becomes of it.
struct Bare(Link);

impl Linked for Bare {
    type Input = ();
    type Output = Vec<String>;

    fn link(&self) -> &Link {
        &self.0
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.0
    }

    fn up(&mut self, _: Now, fx: &mut Effects<Vec<String>>) {
        fx.out.push(format!("up: {:?}", self.0.dialect()));
    }

    fn frame(
        &mut self,
        _: Frame<'_>,
        _: Now,
        _: &mut Effects<Vec<String>>,
    ) -> Result<(), &'static str> {
        Ok(())
    }

    fn lost(&mut self, loss: Loss, _: Now, fx: &mut Effects<Vec<String>>) {
        fx.out.push(format!("{loss:?}"));
    }

    fn on_input(&mut self, (): (), _: Now, _: &mut Effects<Vec<String>>) {}

    fn ends(&mut self, now: Now, fx: &mut Effects<Vec<String>>) {
        self.0.goodbye(now, fx);
    }

    fn due(&mut self, _: Now, _: &mut Effects<Vec<String>>) {}

    fn wake(&self) -> Option<Mono> {
        None
    }

    fn after(&mut self, _: Now, _: &mut Effects<Vec<String>>) {}
}

fn rig() -> Rig<Bare> {
    let login = Login {
        vhost: name("orders"),
        user: name("proxy"),
        password: Bytes::from_static(b"secret"),
        seed: 7,
    };
    Rig::new(Bare(Link::new(Role::Publisher, login)))
}

struct Scripted(Rig<Bare>);

impl Script for Scripted {
    type Machine = Bare;

    fn begin(_: &mut Words) -> Scripted {
        Scripted(rig())
    }

    fn rig(&mut self) -> &mut Rig<Bare> {
        &mut self.0
    }

    /// `tls`: what speaks TLS says · `frame N`: the head of one with so many bytes · `beats`: how many heartbeats it has sent.
    fn line(&mut self, words: &mut Words) -> bool {
        let rig = &mut self.0;
        match words.verb.as_str() {
            "tls" => rig.broker(b"\x15\x03\x03\x00\x02\x02\x0a"),
            "frame" => {
                let size: u32 = words.number();
                let head = [&[3, 0, 1][..], &size.to_be_bytes()].concat();
                let taken = rig.machine.read(Leg::Broker, &head, rig.now, &mut rig.fx);
                rig.fx.out.push(format!("{taken} bytes taken"));
            }
            "beats" => {
                rig.pass(words.number());
                let beats = rig.bytes().len() / frame::HEARTBEAT.len();
                rig.fx.out.push(format!("{beats} heartbeats"));
            }
            _ => return false,
        }
        true
    }

    fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0.fx.out)
    }
}

#[test]
fn it_does_what_the_scripts_say() {
    check::<Scripted>("link/testdata");
}

#[test]
fn a_password_is_not_printed() {
    assert!(!format!("{:?}", rig().machine.0).contains("secret"));
}
