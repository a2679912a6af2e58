//! Publishes that are to arrive later (docs/how-to/delayed-publish.md): which headers count in a world, and what a client says of one.

use dlx_proxy::registry::delayed_exchanges::DelayHeader;
use fastrand::Rng;

use super::codec::methods::Arg;
use super::codec::value::{Bytes, Table, Value};
use super::plan::{Plan, text};

/// Its type is the one of the plugin.
const EXCHANGE: &str = "later";
/// In milliseconds: at once; over one delay queue; over two, and over three.
const DELAYS: [u64; 6] = [0, 1, 30, 1_000, 2_300, 11_111];

/// How a client asks for it.
#[derive(Debug)]
pub(super) struct Later {
    pub exchange: &'static str,
    pub header: (Bytes, Value),
    /// It arrives no sooner, in milliseconds of the wall clock. Nothing: at once.
    pub due: Option<u64>,
}

impl Later {
    /// `declares`: the client has told the proxy of the exchange.
    pub(super) fn draw(rng: &mut Rng, plan: &Plan, declares: bool, now: u64) -> Option<Later> {
        if plan.delays.is_empty() || rng.bool() {
            return None;
        }
        let header = plan.delays[rng.usize(..plan.delays.len())];
        let delay = DELAYS[rng.usize(..DELAYS.len())];
        let (exchange, name, tag, number) = match header {
            DelayHeader::XDelay if !declares => return None,
            DelayHeader::XDelay => (EXCHANGE, "x-delay", b'I', delay),
            DelayHeader::XOptDeliveryTime => ("", "x-opt-delivery-time", b'l', now + delay),
        };
        Some(Later {
            exchange,
            header: (name.into(), Value::Integer(tag, number.into())),
            due: (delay > 0).then_some(now + delay),
        })
    }
}

impl Plan {
    /// Headers by which the proxies delay, in some worlds. Drawn apart, too.
    pub(crate) fn draw_delays(&mut self, rng: &mut Rng) {
        let all = [DelayHeader::XDelay, DelayHeader::XOptDeliveryTime];
        self.delays = match rng.u8(..8) {
            0 | 1 => all[..1].to_vec(),
            2 => all[1..].to_vec(),
            3 => all.to_vec(),
            _ => return,
        };
        if !self.delays.contains(&DelayHeader::XDelay) {
            return;
        }
        let arguments = Table {
            fields: vec![("x-delayed-type".into(), Value::Text("direct".into()))],
            rest: Bytes::new(),
        };
        let args = vec![
            ("exchange", text(EXCHANGE)),
            ("type", text("x-delayed-message")),
            ("durable", Arg::Bit(true)),
            ("arguments", Arg::Table(arguments)),
        ];
        self.declares.push(("exchange.declare", args));
        for queue in [self.sources.clone(), self.targets.clone()].concat() {
            self.bind(&queue, EXCHANGE, &queue);
        }
    }
}
