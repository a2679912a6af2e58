//! Where a round happens: a vhost, proxies in front of it, the targets, and the clients of all sources.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use dlx_proxy::amqp::table::TableBuilder;
use fastrand::Rng;
use tokio::task::JoinSet;

use super::client::{Bits, Came, Client};
use super::flood::{Flood, Flooded};
use super::lab::{DEADLINE, Fallible, Node, until, within};
use super::load::{Source, Yard};
use super::operator::{Moved, Operator, REDRIVEN};
use super::plan::{CONSUMERS, Fault, Plan};
use super::proxy::Proxy;
use super::relay::Relay;

/// The user of the proxies' own connections, and his password.
pub(crate) const USER: &str = "proxy";
pub(crate) const PASSWORD: &str = "secret";

pub(crate) const INTAKE: &str = "dlx-proxy.intake";
pub(crate) const PARKED: &str = "dlx-proxy.parked";
/// What the names of delay queues begin with.
const DELAYS: &str = "dlx-proxy.delay.";

/// Of the delay queues that delayed publishes may need, in milliseconds.
const GRID: [u64; 28] = [
    10, 13, 15, 18, 20, 25, 30, 35, 40, 50, 60, 70, 80, 100, 125, 150, 175, 200, 250, 300, 350,
    400, 500, 600, 700, 800, 2000, 4000,
];
const WARM_UP: &str = "warm-up";

/// Where a target queue that shall be full is so.
const FULL: i64 = 50;

/// A flood sees so much of what comes after a fault.
const RECOVERY: Duration = Duration::from_secs(10);

pub(crate) struct Stage {
    pub node: Arc<Node>,
    pub plan: Plan,
    pub vhost: String,
    pub proxies: Vec<Proxy>,
    /// Between proxy and broker, and between clients and proxy, if the fault is there.
    pub network: Option<Relay>,
    pub client_network: Option<Relay>,
    pub sources: Vec<Arc<Source>>,
    pub yard: Arc<Yard>,
    flood: Option<Flood>,
    operator: Option<Operator>,
    publishers: JoinSet<()>,
    consumers: JoinSet<()>,
}

// === impl Stage ===

impl Stage {
    /// With all that is needed, and the clients at work.
    pub(crate) async fn open(
        node: &Arc<Node>,
        plan: Plan,
        sources: Vec<Source>,
        logs: &Path,
    ) -> Fallible<Stage> {
        let fault = plan.fault;
        let vhost = plan.vhost();
        node.make_user(USER, PASSWORD).await?;
        node.make_vhost(&vhost, &["guest", USER]).await?;

        use Fault::*;
        let network = match fault {
            NetworkCut | NetworkHalfOpen | ProxyTerminated | PublisherAway => {
                Some(relay(node.address.to_string()).await)
            }
            _ => None,
        };
        let port = network.as_ref().map_or(node.address.port(), Relay::port);
        let mut proxies = Vec::new();
        for at in 0..fault.proxies() {
            let log = logs.join(format!(
                "{}-{}-{}-{at}.log",
                fault.name(),
                node.version,
                plan.seed
            ));
            let mut settings = vec![
                ("DLX_PROXY_UPSTREAM", upstream(port, PASSWORD)),
                ("DLX_PROXY_VHOSTS", vhost.clone()),
                // What is parked is looked at in the end.
                ("DLX_PROXY_PARKED_RETRY", "0".to_owned()),
                ("DLX_PROXY_DELAYED_PUBLISH", "x-delay".to_owned()),
            ];
            if plan.hasty {
                let hasty = [
                    ("DLX_PROXY_CONFIRM_TIMEOUT", "1s"),
                    ("DLX_PROXY_CLOSE_WAIT", "1s"),
                    ("DLX_PROXY_PROBE_TIMEOUT", "2s"),
                    ("DLX_PROXY_GIVE_UP_AFTER", "15s"),
                ];
                settings.extend(hasty.map(|(name, value)| (name, value.to_owned())));
            }
            let config = log.with_extension("toml");
            std::fs::write(&config, taken_over(&vhost)).map_err(|error| error.to_string())?;
            settings.push(("DLX_PROXY_CONFIG", config.display().to_string()));
            let mut proxy = Proxy::new(settings, log)?;
            proxy.start()?;
            proxies.push(proxy);
        }
        for proxy in &proxies {
            proxy.until_ready().await?;
        }
        let client_network = match fault {
            ClientCut | ClientHalfOpen => Some(relay(proxies[0].address.to_string()).await),
            _ => None,
        };

        let mut addresses: Vec<_> = proxies.iter().map(|proxy| proxy.address).collect();
        if let Some(relay) = &client_network {
            addresses[0].set_port(relay.port());
        }
        let yard = Yard {
            vhost: vhost.clone(),
            proxies: addresses,
            broker: node.address,
            patience: plan.patience,
            prefetch: plan.prefetch,
            consume: AtomicBool::new(!plan.prefilled),
            healed: AtomicBool::new(fault == ProxyTerminated),
            stop: AtomicBool::new(false),
        };
        let mut stage = Stage {
            node: node.clone(),
            plan,
            vhost,
            proxies,
            network,
            client_network,
            sources: sources.into_iter().map(Arc::new).collect(),
            yard: Arc::new(yard),
            flood: None,
            operator: None,
            publishers: JoinSet::new(),
            consumers: JoinSet::new(),
        };
        stage.make_targets().await?;
        within("delay queues", stage.make_delays()).await?;
        if stage.plan.flood {
            // Not over a cable that breaks between client and proxy.
            stage.flood = Some(
                Flood::begin(stage.proxies[0].address, stage.node.address, &stage.vhost).await?,
            );
        }
        if stage.plan.redrives {
            let proxies = stage.proxies.iter().map(Proxy::admin).collect();
            let rng = Rng::with_seed(stage.plan.seed);
            let operator = Operator::begin(&stage.vhost, proxies, &stage.sources, rng);
            stage.operator = Some(operator);
        }
        stage.begin();
        Ok(stage)
    }

    /// Declares the targets, as the fault wants them.
    pub(crate) async fn make_targets(&self) -> Fallible<()> {
        let making = async {
            let mut direct = self.direct().await?;
            for source in &self.sources {
                let mut arguments = TableBuilder::default();
                arguments.longstr(b"x-queue-type", source.target_kind.as_bytes());
                if self.plan.fault == Fault::TargetFull {
                    arguments.long(b"x-max-length", FULL);
                    arguments.longstr(b"x-overflow", b"reject-publish");
                }
                direct
                    .declare_queue(&source.target, source.durable, &arguments.finish())
                    .await?;
                if self.plan.fault != Fault::TargetMissing {
                    self.make_exchange(&mut direct, source, false).await?;
                }
            }
            let mut arguments = TableBuilder::default();
            arguments.longstr(b"x-queue-type", b"classic");
            let redriven = arguments.finish();
            direct.declare_queue(REDRIVEN, true, &redriven).await?;
            direct.close().await;
            Ok(())
        };
        within("targets", making).await
    }

    /// By one message for each: 3.10 that is killed while it makes a quorum queue leaves one behind that never has a leader.
    async fn make_delays(&self) -> Fallible<()> {
        if !self.plan.fault.restarts() || !self.sources.iter().any(|source| source.delayed) {
            return Ok(());
        }
        let proxy = self.proxies[0].address;
        let mut client = Client::open(proxy, &self.vhost, WARM_UP, DEADLINE).await?;
        client.declare_queue(WARM_UP, true, b"").await?;
        client.declare_delayed(WARM_UP, WARM_UP).await?;
        client.confirm().await?;
        for delay in GRID.map(Duration::from_millis) {
            let mut out = Vec::new();
            client.publish_later(&mut out, WARM_UP, b"", delay);
            client.send(&out).await?;
            match client.next().await? {
                Came::Settled { taken: true, .. } => {}
                other => return Err(format!("{delay:?}: {other:?}")),
            }
        }
        client.close().await;
        Ok(())
    }

    /// The source's dead-letter exchange, if it has one.
    pub(crate) async fn make_exchange(
        &self,
        direct: &mut Client,
        source: &Source,
        internal: bool,
    ) -> Fallible<()> {
        if source.exchange.is_empty() {
            return Ok(());
        }
        let bits = Bits {
            durable: true,
            internal,
        };
        direct
            .declare_exchange(&source.exchange, &source.target, bits)
            .await
    }

    /// A client of the broker itself.
    pub(crate) async fn direct(&self) -> Fallible<Client> {
        self.node.client(&self.vhost).await
    }

    fn begin(&mut self) {
        for (at, source) in self.sources.iter().enumerate() {
            let (publisher, yard) = (source.clone(), self.yard.clone());
            self.publishers
                .spawn(async move { publisher.publish(&yard, at).await });
            for extra in 0..self.consumers_of(source) {
                let (consumer, yard) = (source.clone(), self.yard.clone());
                self.consumers
                    .spawn(async move { consumer.consume(&yard, at + extra).await });
            }
        }
    }

    /// How many consumers it has.
    pub(crate) fn consumers_of(&self, source: &Source) -> usize {
        match self.plan.fault {
            _ if !source.is_rejected() => 0,
            Fault::ProxyTerminated => CONSUMERS,
            _ => 1,
        }
    }

    /// Waits until so much of the work is done, in per cent.
    pub(crate) async fn until_done(&self, part: usize) -> Fallible<()> {
        let all: usize = self.sources.iter().map(|source| 2 * source.number).sum();
        let done = until(format_args!("{part} % of the work"), async || {
            let done: usize = self.sources.iter().map(|source| source.progress()).sum();
            if self.plan.prefilled && done * 100 >= all * 34 {
                self.yard.consume.store(true, Relaxed);
            }
            done * 100 >= all * part
        })
        .await;
        done.map_err(|problem| {
            let sources = self
                .sources
                .iter()
                .map(|source| format!("{source} {:?}", source.ledger));
            format!("{problem}; {}", sources.collect::<Vec<_>>().join("; "))
        })
    }

    /// All is well from now on: the rest may be published.
    pub(crate) fn heal(&self) {
        self.heal_ledgers();
        self.yard.consume.store(true, Relaxed);
        self.yard.healed.store(true, Relaxed);
        if let Some(flood) = &self.flood {
            flood.goes_on_for(RECOVERY);
        }
    }

    /// What is published from now on must not be lost by anybody; counts once.
    pub(crate) fn heal_ledgers(&self) {
        for source in &self.sources {
            source.ledger.heal();
        }
    }

    /// Every publisher has published all, and has heard of it what it can.
    pub(crate) fn is_published(&mut self) -> bool {
        while self.publishers.try_join_next().is_some() {}
        self.publishers.is_empty()
    }

    /// Ends the flood, if there is one.
    pub(crate) async fn end_flood(&mut self) -> Fallible<Option<Flooded>> {
        match self.flood.take() {
            Some(flood) => flood.end().await.map(Some),
            None => Ok(None),
        }
    }

    /// Ends the redrives, if there are any, and says how many messages they moved.
    pub(crate) async fn end_redrives(&mut self) -> Fallible<Option<Moved>> {
        match self.operator.take() {
            Some(operator) => within("the end of a redrive", operator.end())
                .await
                .map(Some),
            None => Ok(None),
        }
    }

    /// Ends the clients.
    pub(crate) async fn end_load(&mut self) -> Fallible<()> {
        self.yard.stop.store(true, Relaxed);
        let clients = async {
            while self.publishers.join_next().await.is_some() {}
            while self.consumers.join_next().await.is_some() {}
            Ok(())
        };
        within("the end of all clients", clients).await
    }

    /// Messages in a quorum queue, with those that its consumer has, and those that wait for the confirms of their dead letters.
    pub(crate) async fn in_queue(&self, queue: &str) -> Fallible<usize> {
        let program = format!(
            "{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"{}\">>, queue, <<\"{queue}\">>)),
             {{ok, {{_, N}}, _}} = ra:local_query(amqqueue:get_pid(Q), fun rabbit_fifo:query_messages_total/1), N.",
            self.vhost
        );
        let answer = self.node.eval(&program).await?;
        answer.parse().map_err(|_| answer)
    }

    /// Messages on their way to a retry: in all delay queues.
    pub(crate) async fn away(&self) -> Fallible<usize> {
        let program = format!(
            "lists:sum([begin {{ok, {{_, N}}, _}} = ra:local_query(amqqueue:get_pid(Q), fun rabbit_fifo:query_messages_total/1), N end
             || Q <- rabbit_amqqueue:list(<<\"{}\">>), {{resource, _, _, <<\"{DELAYS}\", _/binary>>}} <- [amqqueue:get_name(Q)]]).",
            self.vhost
        );
        let answer = self.node.eval(&program).await?;
        answer.parse().map_err(|_| answer)
    }

    pub(crate) async fn withheld(&self) -> u64 {
        let mut sum = 0;
        for proxy in &self.proxies {
            sum += proxy.metric("dlx_proxy_withheld_rejects").await;
        }
        sum
    }

    /// Whether returned messages may have gone back to their queues uncounted, as a proxy could not send them away.
    pub(crate) async fn may_have_refused(&self) -> bool {
        let mut refused = 0;
        for proxy in &self.proxies {
            refused += proxy.refused_retries().await;
        }
        refused > 0 || !self.proxies.iter().all(Proxy::is_the_first)
    }

    /// Whether a confirm for a proxy may have been lost, so that it published something twice.
    pub(crate) async fn may_have_lost_confirms(&self) -> bool {
        let mut lost = 0;
        for proxy in &self.proxies {
            lost += proxy.lost_channels().await;
        }
        lost > 0 || !self.proxies.iter().all(Proxy::is_the_first)
    }

    pub(crate) async fn rest(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// Also those queues that would be native by default: of these nothing would be shown.
fn taken_over(vhost: &str) -> String {
    format!("[[policy]]\nname = \"all\"\nvhost = \"{vhost}\"\npattern = \".*\"\nmode = \"full\"\n")
}

/// As the setting has it.
pub(crate) fn upstream(port: u16, password: &str) -> String {
    format!("amqp://{USER}:{password}@127.0.0.1:{port}")
}

async fn relay(to: String) -> Relay {
    let mut relay = Relay::new(to).await;
    relay.plug_in().await;
    relay
}
