//! What a round is made of, drawn from its seed: faults by name, and the sources that suffer them.

use std::time::Duration;

use fastrand::Rng;

use super::load::{Dies, Ledger, Source};

/// Rejects that are withheld at SIGTERM.
const MANY: usize = 10_000;
/// The shortest of the long alarms and outages: longer than `close-wait`, and than the proxy's patience with a publisher that is blocked.
const LONG: Duration = Duration::from_secs(8);
/// On so many connections for each source.
pub(crate) const CONSUMERS: usize = 4;

macro_rules! faults {
    ($($(#[doc = $doc:literal])* $fault:ident = $name:literal,)*) => {
        /// What breaks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Fault { $($(#[doc = $doc])* $fault,)* }

        impl Fault {
            pub(crate) const ALL: &[Fault] = &[$(Fault::$fault,)*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Fault::$fault => $name,)* }
            }
        }
    };
}

faults! {
    /// `kill -9`, and started again.
    ProxyKilled = "proxy-killed",
    /// SIGTERM while many rejects are withheld, on several connections.
    ProxyTerminated = "proxy-terminated",
    /// SIGSTOP for a while.
    ProxyPaused = "proxy-paused",
    /// One of two is killed, and stays away.
    TwoProxies = "two-proxies",
    /// SIGTERM for each of three, one after the other.
    RollingRestart = "rolling-restart",
    /// `kill -9`, and started again.
    BrokerKilled = "broker-killed",
    /// Stopped in order, and started again.
    BrokerStopped = "broker-stopped",
    /// SIGSTOP for a while.
    BrokerPaused = "broker-paused",
    MemoryAlarm = "memory-alarm",
    DiskAlarm = "disk-alarm",
    /// Connections closed as by rabbitmqctl, several times.
    PublisherClosed = "publisher-closed",
    /// Its connection is cut whenever it comes; all others work.
    PublisherAway = "publisher-away",
    IntakeClosed = "intake-closed",
    ClientClosed = "client-closed",
    /// Between proxy and broker.
    NetworkCut = "network-cut",
    NetworkHalfOpen = "network-half-open",
    /// Between client and proxy.
    ClientCut = "client-cut",
    ClientHalfOpen = "client-half-open",
    /// Is made only when the fault is healed.
    TargetMissing = "target-missing",
    TargetInternal = "target-internal",
    TargetDeleted = "target-deleted",
    /// A queue with `reject-publish`.
    TargetFull = "target-full",
    /// Of the proxy's own user.
    PasswordChanged = "password-changed",
    IntakeQueueDeleted = "intake-queue-deleted",
    // In the rest RabbitMQ itself may lose.
    Transient = "transient-messages",
    NonDurable = "non-durable-queues",
    IntakeExchangeDeleted = "intake-exchange-deleted",
    VhostDeleted = "vhost-deleted",
    /// How it is when all is well.
    Nothing = "nothing",
}

/// A round.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub fault: Fault,
    pub seed: u64,
    /// The part of the work that is done when it breaks, in per cent.
    pub moment: usize,
    /// For how long it stays broken.
    pub outage: Duration,
    /// Whether consumers begin when most is published.
    pub prefilled: bool,
    pub patience: Duration,
    pub prefetch: u16,
    /// Whether clients that it does not concern flood the proxy.
    pub flood: bool,
    /// Whether somebody sends what arrives on, all the time.
    pub redrives: bool,
    /// Short times in the proxy's settings, so that it gives up and retries within a round; else the defaults.
    pub hasty: bool,
    /// As part of `make test`: nothing waits for a minute.
    pub short: bool,
    /// The rest of what the fault itself draws.
    pub rng: Rng,
}

// === impl Fault ===

impl Fault {
    pub(crate) fn of_name(name: &str) -> Option<Fault> {
        Fault::ALL
            .iter()
            .copied()
            .find(|fault| fault.name() == name)
    }

    /// Whether the node starts anew.
    pub(crate) fn restarts(self) -> bool {
        use Fault::*;
        matches!(self, BrokerKilled | BrokerStopped | Transient | NonDurable)
    }

    /// How many proxies there are.
    pub(crate) fn proxies(self) -> usize {
        match self {
            Fault::TwoProxies => 2,
            Fault::RollingRestart => 3,
            _ => 1,
        }
    }

    /// Targets are there all the time and take what comes, as soon as it can come.
    pub(crate) fn parks_nothing(self) -> bool {
        use Fault::*;
        matches!(
            self,
            MemoryAlarm | DiskAlarm | PublisherAway | NetworkCut | Nothing
        )
    }

    /// Nothing stands still for longer than a proxy waits for a confirm, if its settings are the defaults.
    pub(crate) fn keeps_confirms(self) -> bool {
        use Fault::*;
        matches!(
            self,
            ClientClosed
                | ClientCut
                | ClientHalfOpen
                | TargetMissing
                | TargetInternal
                | TargetDeleted
                | TargetFull
                | Nothing
        )
    }

    /// Clients of other queues notice nothing of it, if they go to the first proxy.
    fn leaves_others_alone(self) -> bool {
        use Fault::*;
        self.keeps_confirms()
            || matches!(
                self,
                PublisherClosed | PublisherAway | IntakeClosed | IntakeQueueDeleted
            )
    }

    /// The name of what RabbitMQ itself may lose of a source, if it was published before all was well again.
    pub(crate) fn may_lose(self, source: &Source) -> Option<&'static str> {
        let by_broker = !source.is_rejected() && !source.at_least_once;
        match self {
            // The broker's own move from the source to the intake exchange.
            Fault::BrokerKilled | Fault::BrokerStopped if by_broker => Some("hand-over"),
            Fault::Transient => Some("transient"),
            Fault::NonDurable => Some("non-durable"),
            Fault::IntakeExchangeDeleted => Some("intake-exchange"),
            Fault::IntakeQueueDeleted if !source.is_rejected() => Some("intake-queue"),
            Fault::VhostDeleted => Some("vhost"),
            _ => None,
        }
    }

    /// Whether the same happens to sources without the proxy, to compare with.
    pub(crate) fn is_measured(self) -> bool {
        self.restarts() || matches!(self, Fault::IntakeExchangeDeleted | Fault::VhostDeleted)
    }
}

// === impl Plan ===

impl Plan {
    /// Where it happens.
    pub(crate) fn vhost(&self) -> String {
        format!("{}-{}", self.fault.name(), self.seed)
    }

    /// Whether nothing is as it should be for longer than anybody's patience, and targets are there all the same.
    pub(crate) fn is_long(&self) -> bool {
        self.fault.parks_nothing() && self.outage >= LONG
    }

    /// `floods`: the part of those that may have one, in per cent.
    pub(crate) fn draw(fault: Fault, seed: u64, short: bool, floods: u64) -> (Plan, Vec<Source>) {
        let mut rng = Rng::with_seed(seed);
        // In each lap others have it, so that among so many rounds there are as many as there should be.
        let turn = seed + fault as u64;
        let prefilled = fault == Fault::ProxyTerminated || rng.u8(..4) == 0;
        let outage = match fault {
            Fault::ProxyPaused | Fault::BrokerPaused => {
                Duration::from_secs(if short { 3 } else { 20 })
            }
            Fault::Nothing => Duration::ZERO,
            // All but one of a dozen.
            _ if fault.parks_nothing() && (short || !turn.is_multiple_of(12)) => match short {
                true => LONG,
                false => Duration::from_secs(rng.u64(LONG.as_secs()..=60)),
            },
            _ => Duration::from_millis(rng.u64(..1200)),
        };
        let prefetch = match fault {
            // Within the bound on tickets of each connection.
            Fault::ProxyTerminated => (MANY / CONSUMERS + 100) as u16,
            _ => [10, 100, 500][rng.usize(..3)],
        };
        let plan = Plan {
            fault,
            seed,
            moment: if prefilled {
                rng.usize(37..60)
            } else {
                rng.usize(5..60)
            },
            outage,
            prefilled,
            patience: Duration::from_secs(if rng.bool() { 2 } else { 30 }),
            prefetch,
            // How late a delayed publish is says nothing beside a flood.
            flood: fault != Fault::Nothing
                && fault.leaves_others_alone()
                && turn % 10 * 10 < floods,
            redrives: turn.is_multiple_of(2),
            // A busy machine is slower than these.
            hasty: rng.bool() && fault != Fault::Nothing,
            short,
            rng: rng.fork(),
        };
        let number = rng.usize(1..=3);
        let mut sources: Vec<Source> = (0..number).map(|at| source(&mut rng, fault, at)).collect();
        if fault == Fault::ProxyTerminated {
            for source in &mut sources {
                source.number = MANY / number;
                source.padding = 0;
            }
        }
        for source in &mut sources {
            draw_waits(&mut rng, fault, source);
        }
        if fault.is_measured() {
            // Of the broker itself nobody can ask for retries.
            let has_twin = |source: &&Source| !matches!(source.dies, Dies::Return { .. });
            let twins: Vec<Source> = sources.iter().filter(has_twin).map(twin).collect();
            sources.extend(twins);
        }
        (plan, sources)
    }
}

/// Whether some publishes are delayed, and some deliveries held for too long.
fn draw_waits(rng: &mut Rng, fault: Fault, source: &mut Source) {
    use Fault::*;
    let may_wait = match fault {
        // What waits would be lost, or parked as it is.
        Transient | NonDurable | IntakeExchangeDeleted | IntakeQueueDeleted | VhostDeleted => false,
        _ => source.is_rejected(),
    };
    // SIGTERM comes when all that was confirmed is withheld, so nothing may be elsewhere.
    source.delayed = may_wait && fault != ProxyTerminated && (fault == Nothing || rng.bool());
    let is_returned = matches!(source.dies, Dies::Return { .. });
    source.held = may_wait && is_returned && rng.u8(..3) > 0;
}

/// The source with this number; the first one is fit to suffer the fault.
fn source(rng: &mut Rng, fault: Fault, at: usize) -> Source {
    let kind = if rng.bool() { "quorum" } else { "classic" };
    let rejects = [Dies::Reject, Dies::Nack, Dies::Multiple(rng.usize(2..40))];
    let broker = [Dies::Expire(rng.i64(1..50)), Dies::Overflow];
    let by_reject = match fault {
        Fault::ProxyTerminated | Fault::Nothing => true,
        Fault::PublisherClosed | Fault::ClientClosed | Fault::ClientCut if at == 0 => true,
        Fault::PublisherAway if at == 1 => false,
        Fault::IntakeClosed | Fault::IntakeQueueDeleted | Fault::IntakeExchangeDeleted
            if at == 0 =>
        {
            false
        }
        _ => rng.bool(),
    };
    let back = Dies::Return {
        limit: rng.i64(0..3),
        delay: rng.i64(1..300),
    };
    // Without the intake queue what comes back is parked as it is.
    let may_return = !matches!(
        fault,
        Fault::IntakeQueueDeleted | Fault::VhostDeleted | Fault::NonDurable
    );
    let dies = if by_reject && may_return && rng.u8(..3) == 0 {
        back
    } else if by_reject {
        rejects[rng.usize(..3)]
    } else {
        broker[rng.usize(..2)]
    };
    // While its dead-letter exchange is missing, such a queue tries its messages again after three minutes. 3.10 loses more than such queues
    // when their vhost is deleted: `Node::clear_vhost`.
    let is_fit = !matches!(
        fault,
        Fault::NonDurable | Fault::IntakeExchangeDeleted | Fault::VhostDeleted
    );
    let at_least_once = is_fit && kind == "quorum" && dies != Dies::Overflow && rng.u8(..3) == 0;
    use Fault::*;
    let is_named = matches!(fault, TargetMissing | TargetInternal | TargetDeleted) || rng.bool();
    Source {
        name: format!("source-{at}"),
        kind: if fault == NonDurable { "classic" } else { kind },
        at_least_once,
        dies,
        exchange: if is_named {
            format!("exchange-{at}")
        } else {
            String::new()
        },
        target: format!("target-{at}"),
        target_kind: if rng.bool() && fault != NonDurable {
            "quorum"
        } else {
            "classic"
        },
        durable: fault != NonDurable,
        persistent: fault != Transient,
        number: rng.usize(300..1200),
        padding: [0, 100, 2000][rng.usize(..3)],
        delayed: false,
        held: false,
        is_native: false,
        ledger: Ledger::default(),
    }
}

/// The same without the proxy.
fn twin(source: &Source) -> Source {
    let name = |name: &str| format!("native-{name}");
    Source {
        name: name(&source.name),
        exchange: if source.exchange.is_empty() {
            String::new()
        } else {
            name(&source.exchange)
        },
        target: name(&source.target),
        delayed: false,
        is_native: true,
        ledger: Ledger::default(),
        ..*source
    }
}
