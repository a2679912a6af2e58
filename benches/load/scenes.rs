//! The scenes: which load, which ways are compared, which figures count, and what they should be.
//!
//! A part is a table, and a scene its rows. The last way is judged, by its ratio to `base`.

use crate::alterations;
use crate::connections;
use crate::deaths::{Cause, DEATHS, Deaths, Retries};
use crate::fleet;
use crate::floods::Flood;
use crate::lab::{Lab, Way};
use crate::redrives::{self, Order};
use crate::report::Bar::{self, Least, Most, UpTo};
use crate::report::Figure::{self, *};
use crate::report::Figures;
use crate::traffic::{CONFIRMED, PLAIN, Traffic, UNPACED, paced};

pub(crate) struct Part {
    pub(crate) title: &'static str,
    /// For readers of the page.
    pub(crate) words: &'static str,
    pub(crate) ways: &'static [Way],
    pub(crate) base: Way,
    pub(crate) scenes: &'static [Scene],
}

pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) load: Load,
    pub(crate) figures: &'static [(Figure, Bar)],
    /// It runs on the newest broker only.
    pub(crate) newest: bool,
    /// How often each way has its turn, if that is not the usual number.
    pub(crate) rounds: Option<usize>,
}

#[derive(Clone, Copy)]
pub(crate) enum Load {
    Traffic(Traffic),
    Flood(Flood),
    Deaths(Deaths),
    Retries(Retries),
    Redrive(Order),
    Look,
    Idle,
    Waiting,
    /// By this way; the columns say how many connections.
    Busy(Way),
    Fleet,
    Alterations,
    Backlog,
}

type Bars = &'static [(Figure, Bar)];
const NO: Bar = Bar::None;
const CHEAP: Bars = &[(Rate, Least(1.0)), (Cpu, Most(0.92)), (Longest, UpTo(50.0))];
const CONFIRMS: Bars = &[(Rate, Least(1.0)), (Cpu, Most(1.0)), (Longest, UpTo(50.0))];
const STEADY: Bars = &[(Rate, NO), (Cpu, NO), (Longest, UpTo(50.0))];
const FAST: Bars = &[(Rate, Least(1.0)), (Cpu, NO)];
const NEARLY: Bars = &[(Rate, Least(0.97)), (Cpu, NO)];
const PROMPT: Bars = &[(P50, Most(1.05)), (P99, Most(1.05)), (Cpu, NO)];
const BUSY: Bars = &[(P50, Most(1.1)), (P99, NO)];
const OTHERS: Bars = &[(P50, NO), (P99, NO), (Longest, UpTo(50.0)), (Floods, NO)];
const LETTERS: Bars = &[
    (Rate, Least(0.95)),
    (BrokerCpu, Most(1.1)),
    (Cpu, UpTo(8.0)),
];
const HOPS: Bars = &[(Rate, Least(0.9)), (BrokerCpu, NO), (Cpu, NO)];
const LATE: Bars = &[(P50, NO), (P99, NO), (Cpu, NO)];
const MOVED: Bars = &[(Rate, Least(0.9)), (BrokerCpu, NO), (Peak, NO)];
const FLAT: Bars = &[(Cpu, Most(1.3)), (P50, NO), (P99, NO)];
const ALTERED: Bars = &[
    (Tries, NO),
    (Done, NO),
    (Pause, UpTo(1_000.0)),
    (Longest, NO),
    (Rate, NO),
];
const ASIDE: Bars = &[(Pause, UpTo(21_000.0)), (Rate, NO)];
const FLEET: Bars = &[
    (Connections, NO),
    (Channels, NO),
    (Queues, NO),
    (Requests, NO),
    (BrokerMemory, NO),
    (BrokerShare, NO),
    (ProxyMemory, NO),
    (ProxyShare, NO),
];

const PROXIES: &[Way] = &[Way::Direct, Way::Haproxy, Way::Proxy];
const RELAYS: &[Way] = &[Way::Direct, Way::Relay, Way::Proxy];
const WITH_TLS: &[Way] = &[Way::HaproxyTls, Way::ProxyTls];
const CONNECTIONS: &[Way] = &[
    Way::Count(1),
    Way::Count(100),
    Way::Count(1_000),
    Way::Count(8_000),
];
/// Proxies in front of one broker.
const FLEETS: &[Way] = &[
    Way::Count(1),
    Way::Count(10),
    Way::Count(50),
    Way::Count(100),
    Way::Count(200),
];

const fn scene(name: &'static str, load: Load, figures: Bars) -> Scene {
    Scene {
        name,
        load,
        figures,
        newest: false,
        rounds: None,
    }
}

const fn traffic(name: &'static str, traffic: Traffic, figures: Bars) -> Scene {
    scene(name, Load::Traffic(traffic), figures)
}

const fn flood(name: &'static str, flood: Flood) -> Scene {
    scene(name, Load::Flood(flood), OTHERS).newest()
}

const fn deaths(name: &'static str, deaths: Deaths, figures: Bars) -> Scene {
    scene(name, Load::Deaths(deaths), figures)
}

const fn retries(name: &'static str, kind: &'static str, pace: Option<u64>, bars: Bars) -> Scene {
    scene(
        name,
        Load::Retries(Retries {
            queue_type: kind,
            pace,
        }),
        bars,
    )
}

/// What takes long, and scatters little.
const fn single(name: &'static str, load: Load, figures: Bars) -> Scene {
    Scene {
        rounds: Some(1),
        ..scene(name, load, figures).newest()
    }
}

pub(crate) const PARTS: &[Part] = &[
    Part {
        title: "Throughput",
        words: "Two publishers and two consumers are as fast as they can be. Messages have 100 bytes.\n\
                A publisher stays at most 2,048 messages ahead of its consumer, unless it never waits.",
        ways: PROXIES,
        base: Way::Haproxy,
        scenes: &[
            traffic("never waits", UNPACED, CHEAP),
            traffic(
                "never waits, confirms, window 500",
                CONFIRMED.unpaced(),
                CONFIRMS,
            ),
            traffic("never waits, one connection", UNPACED.shared(), STEADY).newest(),
            traffic("throughput, no confirms", PLAIN, FAST),
            traffic("throughput, confirms, prefetch 1,000", CONFIRMED, FAST),
            traffic(
                "throughput, confirms, prefetch 100",
                CONFIRMED.prefetch(100),
                NEARLY,
            ),
            traffic(
                "throughput, confirms, declared elsewhere",
                CONFIRMED.prefetch(100).elsewhere(),
                NEARLY,
            )
            .newest(),
            traffic(
                "throughput, confirms, prefetch 1",
                CONFIRMED.prefetch(1),
                NEARLY,
            )
            .newest(),
            traffic("throughput, confirms one by one", CONFIRMED.window(1), FAST),
        ],
    },
    Part {
        title: "Latency",
        words: "One publisher keeps a beat. The time is from its write to the delivery.",
        ways: PROXIES,
        base: Way::Haproxy,
        scenes: &[
            traffic("2,000 a second", paced(2_000), PROMPT),
            traffic("10,000 a second", paced(10_000), PROMPT),
            traffic(
                "2,000 a second, two busy loops",
                paced(2_000).beside(2),
                BUSY,
            ),
        ],
    },
    Part {
        title: "TLS on both legs",
        words: "Clients connect with TLS, and so do the proxies to the broker.",
        ways: WITH_TLS,
        base: Way::HaproxyTls,
        scenes: &[
            traffic("throughput, tls", PLAIN, FAST).newest(),
            traffic("throughput, tls, confirms", CONFIRMED, FAST).newest(),
            flood("2,000 a second", Flood::None),
            flood("beside a flood of handshakes", Flood::Handshakes),
        ],
    },
    Part {
        title: "Latency of others under a flood",
        words: "A pair of clients passes 2,000 messages a second, while another client floods the same proxy.",
        ways: PROXIES,
        base: Way::Haproxy,
        scenes: &[
            flood("in peace", Flood::None),
            flood("connections", Flood::Connections),
            flood("declares", Flood::Declares),
            flood("rejects", Flood::Rejects),
            flood("consumers that never read", Flood::Deaf),
            flood("redrives, or a relay", Flood::Redrive(None)),
            flood("redrives, 2,000 a second", Flood::Redrive(Some(2_000))),
        ],
    },
    Part {
        title: "Dead letters",
        words: "Messages are published, rejected, and read as dead letters, all at the same time.\n\
                The relay takes them from the queue itself. It publishes them with the public headers of a dead letter.",
        ways: RELAYS,
        base: Way::Relay,
        scenes: &[
            deaths("nack", DEATHS, LETTERS),
            deaths(
                "nack, queue declared elsewhere",
                DEATHS.elsewhere(),
                LETTERS,
            ),
            deaths("reject", DEATHS.of(Cause::Reject), LETTERS),
            deaths(
                "reject, queue declared elsewhere",
                DEATHS.of(Cause::Reject).elsewhere(),
                LETTERS,
            ),
            deaths("nack, prefetch 10", DEATHS.prefetch(10), HOPS).newest(),
            deaths("nack, prefetch 1", DEATHS.prefetch(1), HOPS).newest(),
            deaths("nack, persistent", DEATHS.persistent(), HOPS).newest(),
        ],
    },
    Part {
        title: "Dead letters of the broker, and retries",
        words: "The proxy learns of these by its intake queue. The relay reads a quorum queue in the same place.\n\
                A retry goes through a quorum queue that delays it, too. The relay puts what it has to know of it into one header.\n\
                Percentiles are beyond the delay.",
        ways: RELAYS,
        base: Way::Relay,
        scenes: &[
            deaths("TTL", DEATHS.of(Cause::Expiry), HOPS),
            deaths("overflow", DEATHS.of(Cause::Overflow), HOPS),
            retries("retries, classic queue", "classic", None, HOPS),
            retries("retries, quorum queue", "quorum", None, HOPS),
            retries(
                "retries, quorum, 1,000 a second",
                "quorum",
                Some(1_000),
                LATE,
            ),
        ],
    },
    Part {
        title: "Redrives",
        words: "A queue full of dead letters is emptied into another one. The relay writes the headers that a redrive leaves.",
        ways: &[Way::Relay, Way::Proxy],
        base: Way::Relay,
        scenes: &[
            scene("redrive", Load::Redrive(Order::Redrive), MOVED),
            scene(
                "2,000 a second",
                Load::Redrive(Order::AtRate(2_000)),
                &[(Rate, UpTo(2_040.0))],
            )
            .newest(),
            scene(
                "purge",
                Load::Redrive(Order::Purge),
                &[(Rate, NO), (Peak, NO)],
            )
            .newest(),
            scene("look first", Load::Look, &[(First, NO), (Page, NO)]).newest(),
        ],
    },
    Part {
        title: "Memory",
        words: "Idle connections have one channel each.",
        ways: &[Way::Haproxy, Way::Proxy],
        base: Way::Haproxy,
        scenes: &[
            single("idle connections", Load::Idle, &[(Each, UpTo(6.0))]),
            single("retries that wait", Load::Waiting, &[(Memory, NO)]),
        ],
    },
    Part {
        title: "Memory with TLS on both legs",
        words: "Idle connections have one channel each.",
        ways: WITH_TLS,
        base: Way::HaproxyTls,
        scenes: &[single(
            "idle connections",
            Load::Idle,
            &[(Each, UpTo(22.0))],
        )],
    },
    Part {
        title: "Busy connections",
        words: "The columns are numbers of connections. They pass 4,000 messages a second in all.\n\
                Each publishes in its turn, and reads its message back.",
        ways: CONNECTIONS,
        base: Way::Count(1),
        scenes: &[
            single(
                "haproxy",
                Load::Busy(Way::Haproxy),
                &[(Cpu, NO), (P50, NO), (P99, NO)],
            ),
            single("dlx-proxy", Load::Busy(Way::Proxy), FLAT),
        ],
    },
    Part {
        title: "A fleet",
        words: "The columns are numbers of proxies in front of one broker, without clients.\n\
                They have a management URL, and lenient declares.",
        ways: FLEETS,
        base: Way::Count(1),
        scenes: &[single("fleet", Load::Fleet, FLEET)],
    },
    Part {
        title: "A queue that is altered in use",
        words: "Two proxies carry 5,000 messages a second to ten consumers of one classic queue. Meanwhile the queue is altered again and again.\n\
                A run fails if a message is lost, comes twice, or comes out of order.",
        ways: &[Way::Proxy],
        base: Way::Proxy,
        scenes: &[Scene {
            rounds: Some(1),
            ..scene("alter", Load::Alterations, ALTERED)
        }],
    },
    Part {
        title: "A backlog while its queue is altered",
        words: "Nobody reads the queue. Its messages of 100 bytes are moved aside and back. The bar is the pause that the plan names for 50,000.\n\
                A run fails if a message is lost, comes twice, or comes out of order.",
        ways: &[Way::Proxy],
        base: Way::Proxy,
        scenes: &[scene("alter a backlog", Load::Backlog, ASIDE)],
    },
];

// === impl Part ===

impl Part {
    /// Whether its proxies ask the management API.
    pub(crate) fn is_managed(&self) -> bool {
        let mut loads = self.scenes.iter().map(|scene| scene.load);
        loads.any(|load| matches!(load, Load::Fleet | Load::Alterations | Load::Backlog))
    }
}

// === impl Scene ===

impl Scene {
    const fn newest(mut self) -> Scene {
        self.newest = true;
        self
    }
}

// === impl Load ===

impl Load {
    pub(crate) fn run(self, lab: &Lab<'_>, way: Way) -> anyhow::Result<Figures> {
        match self {
            Load::Traffic(traffic) => traffic.run(lab, lab.route(way)?),
            Load::Flood(flood) => flood.run(lab, way),
            Load::Deaths(deaths) => deaths.run(lab, way),
            Load::Retries(retries) => retries.run(lab, way),
            Load::Redrive(order) => order.run(lab, way),
            Load::Look => redrives::look(lab, way),
            Load::Idle => connections::idle(lab, way),
            Load::Waiting => connections::waiting(lab, way),
            Load::Busy(by) => connections::busy(lab, by, way),
            Load::Fleet => fleet::run(lab, way),
            Load::Alterations => alterations::run(lab),
            Load::Backlog => alterations::with_backlog(lab),
        }
    }
}
