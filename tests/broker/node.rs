//! A RabbitMQ node: where it is, and what an operator does there.

use std::sync::{Arc, LazyLock};

use lapin::uri::AMQPUri;

use super::ctl;
use super::door::Door;
use super::environment::by_version;

const HOW: &str = "\
these tests need real brokers: run `make broker`, or give your own as
  DLX_TEST_BROKERS=\"3.10.8=amqp://guest:guest@127.0.0.1:5672,4.3.6=amqp://...\"
  DLX_TEST_CTL=\"3.10.8=COMMAND;4.3.6=COMMAND\"    rabbitmqctl for each of them";

/// One RabbitMQ node.
#[derive(Debug)]
pub(crate) struct Broker {
    pub version: String,
    pub uri: AMQPUri,
    pub url: String,
    door: Door,
}

// === impl Broker ===

impl Broker {
    /// All that the environment names, oldest first.
    pub(crate) fn all() -> Vec<Arc<Broker>> {
        static ALL: LazyLock<Vec<Arc<Broker>>> = LazyLock::new(Broker::named);
        ALL.clone()
    }

    fn named() -> Vec<Arc<Broker>> {
        let controls = by_version("DLX_TEST_CTL", ';');
        let broker = |(version, url): (String, String)| {
            let (_, control) = controls.iter().find(|(of, _)| *of == version).expect(HOW);
            Arc::new(Broker {
                uri: url.parse().expect(HOW),
                door: Door::new(control.split_whitespace().map(str::to_owned).collect()),
                version,
                url,
            })
        };
        let brokers: Vec<_> = by_version("DLX_TEST_BROKERS", ',')
            .into_iter()
            .map(broker)
            .collect();
        assert!(!brokers.is_empty(), "{HOW}");
        brokers
    }

    pub(crate) fn is_4x(&self) -> bool {
        !self.version.starts_with("3.")
    }

    /// As the setting `upstream` has it, with another port or user.
    pub(crate) fn upstream(&self, port: u16, user: &str) -> String {
        let authority = &self.uri.authority;
        format!("amqp://{user}@{}:{port}", authority.host)
    }

    /// `user:password` of the administrator.
    pub(crate) fn credentials(&self) -> String {
        let userinfo = &self.uri.authority.userinfo;
        format!("{}:{}", userinfo.username, userinfo.password)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> String {
        let authority = &self.uri.authority;
        format!("{}:{}", authority.host, authority.port)
    }

    pub(crate) async fn make_vhost(&self, vhost: &str) {
        let user = &self.uri.authority.userinfo.username;
        self.eval(&ctl::make_vhost(vhost, &[user])).await;
    }

    pub(crate) async fn delete_vhost(&self, vhost: &str) {
        self.eval(&ctl::delete_vhost(vhost)).await;
    }

    /// What the node says to these expressions.
    pub(crate) async fn eval(&self, program: &str) -> String {
        self.door.eval(program).await.expect("the node does it")
    }
}
