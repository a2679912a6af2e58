//! The brokers that the environment names, a vhost of its own for each way of a test, and waiting for things with a deadline.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dlx_proxy::registry::policy::Mode;
use futures::FutureExt;
use futures::future::join_all;
use tokio::sync::RwLock;

use super::node::Broker;
use super::proxy::Proxy;

/// After which a condition counts as never met. Generous: a machine may be busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// Of this process: tests run side by side, and so may several runs on one broker.
static VHOSTS: AtomicUsize = AtomicUsize::new(0);

/// Held by each test that is running.
static IN_USE: RwLock<()> = RwLock::const_new(());

/// Both modes of the proxy.
pub(crate) const BOTH: &[Mode] = &[Mode::Full, Mode::RejectsOnly];

/// One way to run a test: a broker, a mode, a vhost that nobody else uses, and a proxy in front.
pub(crate) struct Way {
    pub broker: Arc<Broker>,
    pub vhost: String,
    pub proxy: Proxy,
}

/// Runs `test` on each broker in each of these modes, side by side.
pub(crate) async fn each(modes: &[Mode], test: impl AsyncFn(&Way)) {
    let _shared = IN_USE.read().await;
    side_by_side(modes, async |broker, mode, vhost| {
        let way = Way::open(broker, mode, vhost, &[]).await;
        test(&way).await;
        way.proxy.stop().await;
    })
    .await;
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
pub(crate) async fn until(what: impl fmt::Display, mut met: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !met().await {
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for something that must come.
pub(crate) async fn within<T>(what: impl fmt::Display, coming: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, coming).await {
        Ok(came) => came,
        Err(_) => unreachable!("not within {DEADLINE:?}: {what}"),
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
            vhost: vhost.to_owned(),
            proxy,
        }
    }
}
