//! How each fault is done and undone. Every one of them ends with a world in which everything could be well again.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::lab::{Fallible, until};
use super::load::{Dies, Source};
use super::plan::Fault;
use super::relay::{self, Gone, PUBLISHER};
use super::stage::{INTAKE, PASSWORD, Stage, USER, upstream};

impl Stage {
    /// Breaks it, waits, heals it.
    pub(crate) async fn strike(&mut self) -> Fallible<()> {
        let (node, outage) = (self.node.clone(), self.plan.outage);
        if self.plan.fault.restarts() {
            self.until_delays_are_made().await?;
            node.settle().await?;
        }
        match self.plan.fault {
            Fault::ProxyKilled => {
                self.proxies[0].kill()?;
                self.rest(outage).await;
                self.proxies[0].start()?;
            }
            Fault::ProxyTerminated => self.terminate().await?,
            Fault::ProxyPaused => {
                self.proxies[0].signal("STOP")?;
                self.rest(outage).await;
                self.proxies[0].signal("CONT")?;
            }
            Fault::TwoProxies => self.proxies[0].kill()?,
            Fault::RollingRestart => {
                for proxy in &mut self.proxies {
                    proxy.stop().await?;
                    proxy.start()?;
                    proxy.until_ready().await?;
                }
            }
            Fault::BrokerKilled => {
                node.kill().await?;
                node.start().await?;
            }
            Fault::BrokerStopped => {
                node.stop().await?;
                node.start().await?;
            }
            Fault::Transient | Fault::NonDurable => {
                if self.plan.rng.bool() {
                    node.kill().await?;
                } else {
                    node.stop().await?;
                }
                node.start().await?;
                self.make_targets().await?;
            }
            Fault::BrokerPaused => {
                node.signal("STOP")?;
                self.rest(outage).await;
                node.signal("CONT")?;
            }
            Fault::MemoryAlarm => {
                let set = "vm_memory_monitor:set_vm_memory_high_watermark";
                let usual = node
                    .eval("vm_memory_monitor:get_vm_memory_high_watermark().")
                    .await?;
                self.alarm(
                    "memory",
                    &format!("{set}(0.00001)."),
                    &format!("{set}({usual})."),
                )
                .await?;
            }
            Fault::DiskAlarm => {
                let set = "rabbit_disk_monitor:set_disk_free_limit";
                let usual = node
                    .eval("rabbit_disk_monitor:get_disk_free_limit().")
                    .await?;
                self.alarm(
                    "disk",
                    &format!("{set}(1000000000000000)."),
                    &format!("{set}({usual})."),
                )
                .await?;
            }
            Fault::PublisherClosed => self.close_often("dlx-proxy publisher").await?,
            Fault::PublisherAway => {
                if let Some(relay) = &self.network {
                    relay.set(relay::Fault::Cut(PUBLISHER));
                    self.rest(outage).await;
                    relay.set(relay::Fault::None);
                }
            }
            Fault::IntakeClosed => self.close_often("dlx-proxy intake").await?,
            Fault::ClientClosed => self.close_often("").await?,
            Fault::NetworkCut | Fault::ClientCut => {
                if let Some(relay) = self.network.as_mut().or(self.client_network.as_mut()) {
                    relay.cut().await;
                    tokio::time::sleep(outage).await;
                    relay.plug_in().await;
                }
            }
            Fault::NetworkHalfOpen | Fault::ClientHalfOpen => {
                let choice = self.plan.rng.usize(..3);
                use relay::Fault::{HalfOpen, None, Silent};
                let fault = [Silent, HalfOpen(Gone::Near), HalfOpen(Gone::Far)][choice];
                if let Some(relay) = self.network.as_ref().or(self.client_network.as_ref()) {
                    relay.set(fault);
                    self.rest(outage * 3).await;
                    relay.set(None);
                }
            }
            Fault::TargetMissing => {
                self.rest(outage).await;
                self.make_exchanges(false).await?;
            }
            Fault::TargetInternal | Fault::TargetDeleted => {
                let mut direct = self.direct().await?;
                for source in &self.sources {
                    direct.delete_exchange(&source.exchange).await?;
                    if self.plan.fault == Fault::TargetInternal {
                        self.make_exchange(&mut direct, source, true).await?;
                    }
                }
                self.rest(outage).await;
                if self.plan.fault == Fault::TargetInternal {
                    for source in &self.sources {
                        direct.delete_exchange(&source.exchange).await?;
                    }
                }
                direct.close().await;
                self.make_exchanges(false).await?;
            }
            // The targets become full by themselves, and are read when it is healed.
            Fault::TargetFull | Fault::Nothing => self.rest(outage).await,
            Fault::PasswordChanged => self.change_password().await?,
            Fault::IntakeQueueDeleted => {
                let mut direct = self.direct().await?;
                direct.delete_queue(INTAKE).await?;
                direct.close().await;
                // What was published from now on dies later.
                self.heal_ledgers();
                self.rest(outage).await;
                until("the intake queue is there again", async || {
                    self.in_queue(INTAKE).await.is_ok()
                })
                .await?;
            }
            Fault::IntakeExchangeDeleted => self.delete_intake_exchanges().await?,
            Fault::VhostDeleted => {
                node.delete_vhost(&self.vhost).await?;
                self.rest(outage).await;
                node.make_vhost(&self.vhost, &["guest", USER]).await?;
                self.make_targets().await?;
                // A proxy that was refused tries again after a minute: once in a while that is waited for.
                if self.plan.short || self.plan.rng.u8(..4) > 0 {
                    self.proxies[0].stop().await?;
                    self.proxies[0].start()?;
                }
                self.proxies[0].until_ready().await?;
                self.until_declared_anew().await?;
            }
        }
        if self.plan.fault == Fault::TwoProxies {
            self.proxies[1].until_ready().await?;
        }
        if self.plan.fault.restarts() {
            self.until_led().await?;
        }
        Ok(())
    }

    /// The delay queues of retries are there. 3.10 that is killed while it makes a quorum queue leaves one behind that never has a leader.
    async fn until_delays_are_made(&self) -> Fallible<()> {
        let returns = |source: &std::sync::Arc<Source>| {
            matches!(source.dies, Dies::Return { limit: 1.., .. })
        };
        let consumed = self.yard.consume.load(Relaxed);
        let wanted = consumed && self.sources.iter().any(returns);
        until("a message is away", async || {
            !wanted || self.proxies[0].metric("dlx_proxy_retries_total").await > 0
        })
        .await
    }

    /// Every quorum queue has its leader again: before that RabbitMQ drops what it hands on to one, unless somebody waits for a confirm.
    async fn until_led(&self) -> Fallible<()> {
        let program = format!(
            "length([Q || Q <- rabbit_amqqueue:list(<<\"{}\">>), is_tuple(amqqueue:get_pid(Q)),
               ra_leaderboard:lookup_leader(element(1, amqqueue:get_pid(Q))) =:= undefined]).",
            self.vhost
        );
        until("quorum queues have leaders", async || {
            self.node
                .eval(&program)
                .await
                .is_ok_and(|number| number == "0")
        })
        .await
    }

    /// SIGTERM when all rejects are withheld, as the publisher's connection is jammed; it comes free in the course of the drain, or not at all.
    async fn terminate(&mut self) -> Fallible<()> {
        let all: usize = self.sources.iter().map(|source| source.number).sum();
        until("all is published", async || self.is_published()).await?;
        let relay = self.network.as_ref().ok_or("no relay")?;
        relay.set(relay::Fault::Jam(PUBLISHER));
        self.yard.consume.store(true, Relaxed);
        // Those that were not confirmed may be there or not.
        let confirmed: usize = self
            .sources
            .iter()
            .map(|source| source.ledger.confirmed().len())
            .sum();
        until(format_args!("{all} rejects are withheld"), async || {
            self.withheld().await as usize >= confirmed
        })
        .await?;
        self.proxies[0].signal("TERM")?;
        // The last one is later than the grace of a drain.
        let choices = if self.plan.short { 3 } else { 4 };
        let free_after = [0, 500, 3000, 27_000][self.plan.rng.usize(..choices)];
        let (ended, ()) = tokio::join!(self.proxies[0].ended(), async {
            tokio::time::sleep(Duration::from_millis(free_after)).await;
            relay.set(relay::Fault::None);
        });
        let status = ended?;
        if !status.success() {
            return Err(format!("the proxy ended with {status}"));
        }
        self.proxies[0].start()
    }

    async fn alarm(&self, name: &str, set: &str, clear: &str) -> Fallible<()> {
        let node = &self.node;
        node.eval(set).await?;
        let heard = until("the alarm", async || {
            let alarms = node.eval("rabbit_alarm:get_alarms().").await;
            alarms.is_ok_and(|alarms| alarms.contains(name))
        });
        let heard = heard.await;
        self.rest(self.plan.outage).await;
        node.eval(clear).await?;
        heard
    }

    /// Connections that are named so, one to three times; "": one of the clients' roles.
    async fn close_often(&mut self, name: &str) -> Fallible<()> {
        for _ in 0..self.plan.rng.usize(1..=3) {
            let roles = ["consumer of", "publisher of"];
            let role = if name.is_empty() {
                roles[self.plan.rng.usize(..2)]
            } else {
                name
            };
            until(format_args!("a connection of a {role}"), async || {
                matches!(
                    self.node.close_connections(&self.vhost, role).await,
                    Ok(1..)
                )
            })
            .await?;
            self.rest(self.plan.outage / 10).await;
        }
        Ok(())
    }

    async fn make_exchanges(&self, internal: bool) -> Fallible<()> {
        let mut direct = self.direct().await?;
        for source in &self.sources {
            self.make_exchange(&mut direct, source, internal).await?;
        }
        direct.close().await;
        Ok(())
    }

    /// The proxy's links are refused, until the password is what it was, or the proxy is told.
    async fn change_password(&mut self) -> Fallible<()> {
        let node = self.node.clone();
        node.make_user(USER, "another").await?;
        for link in ["dlx-proxy publisher", "dlx-proxy intake"] {
            node.close_connections(&self.vhost, link).await?;
        }
        self.rest(self.plan.outage).await;
        // A proxy that was refused tries again after a minute: once in a while that is waited for.
        let waits = !self.plan.short && self.plan.rng.u8(..4) == 0;
        if waits || self.plan.rng.bool() {
            node.make_user(USER, PASSWORD).await?;
        } else {
            self.proxies[0].set(
                "DLX_PROXY_UPSTREAM",
                upstream(node.address.port(), "another"),
            );
        }
        if !waits {
            self.proxies[0].stop().await?;
            self.proxies[0].start()?;
        }
        self.proxies[0].until_ready().await
    }

    /// And the twins' dead-letter exchanges. A proxy makes its own again when it is asked for them and does not know them.
    async fn delete_intake_exchanges(&mut self) -> Fallible<()> {
        let program = format!(
            "[rabbit_exchange:delete(Name, false, <<\"tests\">>) || {{resource, _, exchange, Text}} = Name <- rabbit_exchange:list_names(),
               element(2, Name) =:= <<\"{}\">>, string:prefix(Text, <<\"dlx-proxy/\">>) =/= nomatch
                 orelse string:prefix(Text, <<\"dlx-proxy++/\">>) =/= nomatch orelse string:prefix(Text, <<\"dlx-proxy+/\">>) =/= nomatch], ok.",
            self.vhost
        );
        self.node.eval(&program).await?;
        let mut direct = self.direct().await?;
        let twins =
            |source: &&std::sync::Arc<Source>| source.is_native && !source.exchange.is_empty();
        for source in self.sources.iter().filter(twins) {
            direct.delete_exchange(&source.exchange).await?;
        }
        direct.close().await;
        self.rest(self.plan.outage).await;
        self.make_exchanges(false).await?;
        self.proxies[0].stop().await?;
        self.proxies[0].start()?;
        self.proxies[0].until_ready().await?;
        self.until_declared_anew().await
    }

    /// Every publisher has declared its source on a new connection.
    async fn until_declared_anew(&self) -> Fallible<()> {
        let counts = |source: &std::sync::Arc<Source>| source.ledger.declared.load(Relaxed);
        let before: Vec<usize> = self.sources.iter().map(counts).collect();
        self.node
            .close_connections(&self.vhost, "publisher of")
            .await?;
        until("all sources are declared anew", async || {
            let now = self.sources.iter().map(counts);
            now.zip(&before).all(|(now, before)| now > *before)
        })
        .await
    }
}
