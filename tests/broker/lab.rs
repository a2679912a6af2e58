//! The brokers that the environment names, a vhost of its own for each way of a test, and waiting for things with a deadline.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dlx_proxy::registry::policy::Mode;
use futures::FutureExt;
use futures::future::join_all;
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};
use tokio::sync::RwLock;

use super::ctl;
use super::environment::by_version;
use super::proxy::Proxy;

/// After which a condition counts as never met. Generous: a machine may be busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// The same for a rabbitmqctl: to start one takes a busy machine half a minute, and a vhost with a million messages goes as slowly.
const CONTROL: Duration = Duration::from_secs(300);

/// Of this process: tests run side by side, and so may several runs on one broker.
static VHOSTS: AtomicUsize = AtomicUsize::new(0);

/// Held by each test that is running.
static IN_USE: RwLock<()> = RwLock::const_new(());

const HOW: &str = "\
these tests need real brokers: run `make broker`, or give your own as
  DLX_TEST_BROKERS=\"3.10.8=amqp://guest:guest@127.0.0.1:5672,4.3.6=amqp://...\"
  DLX_TEST_CTL=\"3.10.8=COMMAND;4.3.6=COMMAND\"    rabbitmqctl for each of them
  DLX_TEST_MANAGEMENT=\"3.10.8=http://guest:guest@127.0.0.1:15672,4.3.6=http://...\"";

/// Both modes of the proxy.
pub(crate) const BOTH: &[Mode] = &[Mode::Takeover, Mode::Keep];

/// One RabbitMQ node.
#[derive(Debug)]
pub(crate) struct Broker {
    pub version: String,
    pub uri: AMQPUri,
    url: String,
    control: Vec<String>,
    management: Option<String>,
}

/// One way to run a test: a broker, a mode, a vhost that nobody else uses, and a proxy in front.
pub(crate) struct Way {
    pub broker: Arc<Broker>,
    pub mode: Mode,
    pub vhost: String,
    pub proxy: Proxy,
}

/// Runs `test` on each broker in each of these modes, side by side.
pub(crate) async fn each(modes: &[Mode], test: impl AsyncFn(&Way)) {
    let _shared = IN_USE.read().await;
    each_way(modes, test).await;
}

/// The same while no other test uses the brokers: this one disturbs all of them.
pub(crate) async fn each_alone(modes: &[Mode], test: impl AsyncFn(&Way)) {
    let _alone = IN_USE.write().await;
    each_way(modes, test).await;
}

async fn each_way(modes: &[Mode], test: impl AsyncFn(&Way)) {
    side_by_side(modes, async |broker, mode, vhost| {
        let way = Way::open(broker, mode, vhost, &[]).await;
        test(&way).await;
        way.proxy.stop().await;
    })
    .await;
}

/// Runs `test` on each broker in each of these modes, side by side, without a proxy: the test brings its own.
pub(crate) async fn each_place(modes: &[Mode], test: impl AsyncFn(&Arc<Broker>, Mode, &str)) {
    let _shared = IN_USE.read().await;
    side_by_side(modes, test).await;
}

async fn side_by_side(modes: &[Mode], test: impl AsyncFn(&Arc<Broker>, Mode, &str)) {
    let one = async |broker: Arc<Broker>, mode: Mode| {
        let test = async |vhost: &str| test(&broker, mode, vhost).await;
        in_vhost(&broker, &format!("{mode:?}"), test).await
    };
    let brokers = Broker::all();
    let ways = brokers
        .iter()
        .flat_map(|broker| modes.iter().map(|mode| one(broker.clone(), *mode)));
    no_failures(join_all(ways).await);
}

/// Runs `test` on each broker, one after the other, without a proxy: the test brings its own.
pub(crate) async fn each_broker(test: impl AsyncFn(&Arc<Broker>, &str)) {
    let _shared = IN_USE.read().await;
    one_by_one(test).await;
}

/// The same while no other test uses the brokers.
pub(crate) async fn each_broker_alone(test: impl AsyncFn(&Arc<Broker>, &str)) {
    let _alone = IN_USE.write().await;
    one_by_one(test).await;
}

async fn one_by_one(test: impl AsyncFn(&Arc<Broker>, &str)) {
    let mut failed = Vec::new();
    for broker in Broker::all() {
        failed.push(in_vhost(&broker, "", async |vhost| test(&broker, vhost).await).await);
    }
    no_failures(failed);
}

/// Runs `test` in a vhost that exists only for it. Returns where it failed, if it did.
async fn in_vhost(broker: &Broker, label: &str, test: impl AsyncFn(&str)) -> Option<String> {
    let number = VHOSTS.fetch_add(1, Ordering::Relaxed);
    let vhost = format!("test-{}-{number}", std::process::id());
    broker.make_vhost(&vhost).await;
    let outcome = AssertUnwindSafe(test(&vhost)).catch_unwind().await;
    broker.delete_vhost(&vhost).await;
    let place = format!("{} {}", broker.version, label.to_lowercase());
    outcome.err().map(|_| {
        eprintln!("^ that was on {place}");
        place
    })
}

fn no_failures(failed: Vec<Option<String>>) {
    let failed: Vec<String> = failed.into_iter().flatten().collect();
    assert!(failed.is_empty(), "failed on {}", failed.join(", "));
}

/// Asks until the answer is yes.
pub(crate) async fn until(what: impl fmt::Display, met: impl AsyncFnMut() -> bool) {
    until_for(DEADLINE, what, met).await;
}

/// The same for what the proxy itself waits with.
pub(crate) async fn until_for(
    deadline: Duration,
    what: impl fmt::Display,
    mut met: impl AsyncFnMut() -> bool,
) {
    let end = Instant::now() + deadline;
    while !met().await {
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for something that must come.
pub(crate) async fn within<T>(what: impl fmt::Display, coming: impl Future<Output = T>) -> T {
    within_for(DEADLINE, what, coming).await
}

async fn within_for<T>(
    patience: Duration,
    what: impl fmt::Display,
    coming: impl Future<Output = T>,
) -> T {
    match tokio::time::timeout(patience, coming).await {
        Ok(came) => came,
        Err(_) => unreachable!("not within {patience:?}: {what}"),
    }
}

// === impl Way ===

impl Way {
    /// With a proxy that is ready.
    pub(crate) async fn open(
        broker: &Arc<Broker>,
        mode: Mode,
        vhost: &str,
        settings: &[(&'static str, &str)],
    ) -> Way {
        let proxy = Proxy::start(&broker.url, mode, vhost, settings).await;
        until("the proxy is ready", async || proxy.admin.is_ready().await).await;
        Way {
            broker: broker.clone(),
            mode,
            vhost: vhost.to_owned(),
            proxy,
        }
    }

    /// A lapin connection through the proxy.
    pub(crate) async fn connect(&self) -> Connection {
        connect(&self.broker, self.proxy.address.port(), &self.vhost).await
    }

    /// A lapin connection to the broker itself, to prepare and to look.
    pub(crate) async fn connect_directly(&self) -> Connection {
        connect(&self.broker, self.broker.uri.authority.port, &self.vhost).await
    }
}

/// A lapin connection to a port of the broker's host.
pub(crate) async fn connect(broker: &Broker, port: u16, vhost: &str) -> Connection {
    let mut uri = broker.uri.clone();
    uri.authority.port = port;
    uri.vhost = vhost.to_owned();
    let connection = Connection::connect_uri(uri, ConnectionProperties::default());
    within("a connection", connection)
        .await
        .expect("a connection")
}

// === impl Broker ===

impl Broker {
    /// All that the environment names, oldest first.
    pub(crate) fn all() -> Vec<Arc<Broker>> {
        let controls = by_version("DLX_TEST_CTL", ';');
        let managements = by_version("DLX_TEST_MANAGEMENT", ',');
        let broker = |(version, url): (String, String)| {
            let (_, control) = controls.iter().find(|(of, _)| *of == version).expect(HOW);
            Arc::new(Broker {
                uri: url.parse().expect(HOW),
                management: managements
                    .iter()
                    .find(|(of, _)| *of == version)
                    .map(|(_, url)| url.clone()),
                control: control.split_whitespace().map(str::to_owned).collect(),
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

    /// Credentials and `host:port` of the management API.
    pub(crate) fn management(&self) -> (String, String) {
        let url = self.management.as_deref().expect(HOW);
        let authority = url.trim_start_matches("http://").trim_end_matches('/');
        let (credentials, address) = authority.rsplit_once('@').expect(HOW);
        (credentials.to_owned(), address.to_owned())
    }

    /// A policy for the queues and exchanges of all scenes in a vhost; `definition` in Erlang.
    pub(crate) async fn set_policy(&self, vhost: &str, name: &str, definition: &str) {
        self.eval(&format!(
            "rabbit_policy:set(<<\"{vhost}\">>, <<\"{name}\">>, <<\"^(classic|quorum)\">>, {definition}, 1, <<\"all\">>, <<\"tests\">>)."
        ))
        .await;
    }

    pub(crate) async fn clear_policy(&self, vhost: &str, name: &str) {
        self.eval(&format!(
            "rabbit_policy:delete(<<\"{vhost}\">>, <<\"{name}\">>, <<\"tests\">>)."
        ))
        .await;
    }

    async fn make_vhost(&self, vhost: &str) {
        let user = &self.uri.authority.userinfo.username;
        self.eval(&ctl::make_vhost(vhost, &[user])).await;
    }

    /// A user without any rights, with the password `secret`; goes with the vhost. Returns its name.
    pub(crate) async fn make_user(&self, vhost: &str) -> String {
        let user = format!("{vhost}-user");
        let add = format!(
            "rabbit_auth_backend_internal:add_user(<<\"{user}\">>, <<\"secret\">>, <<\"tests\">>)."
        );
        self.eval(&add).await;
        user
    }

    async fn delete_vhost(&self, vhost: &str) {
        self.eval(&format!(
            "catch rabbit_auth_backend_internal:delete_user(<<\"{vhost}-user\">>, <<\"tests\">>), \
             {}",
            ctl::delete_vhost(vhost)
        ))
        .await;
    }

    /// Runs something while the broker believes that it is short of memory.
    pub(crate) async fn under_memory_alarm(&self, run: impl Future<Output = ()>) {
        let set = async |watermark: &str| {
            self.eval(&format!(
                "vm_memory_monitor:set_vm_memory_high_watermark({watermark})."
            ))
            .await
        };
        set("0.0001").await;
        let outcome = AssertUnwindSafe(run).catch_unwind().await;
        set("element(2, application:get_env(rabbit, vm_memory_high_watermark))").await;
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    }

    /// Runs something while new connections may have this many channels.
    pub(crate) async fn with_channel_max(&self, most: u16, run: impl Future<Output = ()>) {
        let set = async |most: &str| {
            let set = format!("application:set_env(rabbit, channel_max, {most}).");
            self.eval(&set).await
        };
        let before = self
            .eval("element(2, application:get_env(rabbit, channel_max)).")
            .await;
        set(&most.to_string()).await;
        let outcome = AssertUnwindSafe(run).catch_unwind().await;
        set(&before).await;
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    }

    /// Evaluates Erlang on the node: one program where several commands of rabbitmqctl would take a second each.
    pub(crate) async fn eval(&self, expression: &str) -> String {
        self.ctl(&["--quiet", "eval", expression]).await
    }

    /// Runs rabbitmqctl.
    pub(crate) async fn ctl(&self, words: &[&str]) -> String {
        let (program, first) = self.control.split_first().expect(HOW);
        let mut command = Command::new(program);
        command.args(first).args(words);
        let run = within_for(CONTROL, "rabbitmqctl", ctl::run(command)).await;
        let said = run.expect("rabbitmqctl does it");
        let failed = said.starts_with("{error") || said.contains("badmatch");
        assert!(!failed, "rabbitmqctl {words:?}: {said}");
        said
    }
}
