//! A proxy in front of RabbitMQ that takes over dead-lettering. This is its map; ARCHITECTURE.md tells the ways of single messages.
//!
//! ```text
//!  client ◀──▶ session ◀──▶ broker          all but a few frames pass as they are
//!                 │
//!                 │ reject of a managed queue: withheld, planned, published; acked when that is confirmed
//!                 ▼
//!        dead_letter::dispose ▶ publisher ──▶ broker          mandatory, with confirms
//!                 ▲
//!                 │ signal: a death of the broker's own
//!               intake ◀──────────────────── broker          what expired, overflowed, or was rejected without us
//! ```
//!
//! **The reject path.** [`session`] keeps a copy of each delivery of a queue whose target it knows. A reject does not go to the broker: `dispose`
//! makes a dead letter of the copy, the publisher publishes it, and only its outcome lets the session ack the original.
//!
//! **The intake path.** [`session`] declares queues with an intake exchange whose name says their target ([`objects`]). What dies
//! at the broker arrives in the intake queue; [`intake`] makes a death of it, then the same `dispose`, the same publisher, and an ack at the end.
//! The two paths meet nowhere else.
//!
//! **Pure**: all of [`dlx_core`], which is here as well: no sockets, clocks, tasks, locks, files or randomness, and no logging.
//!
//! **Shell**, thin:
//! - [`net`]: the driver that pumps machines, the listener, and who sends what to whom
//! - [`management`]: RabbitMQ's management API, for what AMQP does not show
//! - [`telemetry`]: log lines and counters · [`readiness`]: whether clients should be sent here
//! - [`config`]: settings and every mistake in them · [`reload`]: SIGHUP · [`drain`]: how the process ends
//! - [`service`]: what systemd is told, and hands over · [`descriptors`]: how many clients the system has room for
//! - [`known`]: the last dead letters, and the queues that they went to ·
//!   [`hook`]: what an HTTP server is told of dead letters · [`own_user`]: what makes the broker let the proxy work
//! - [`console`]: what operators use: the API, its pages, the command line. Nothing above uses it
//! - [`app`] wires all of it
//!
//! The wall between them is that of the crates.

pub use dlx_core::*;

pub mod app;
pub mod config;
pub mod console;
pub mod descriptors;
pub mod drain;
pub mod hook;
pub mod http;
pub mod known;
pub mod management;
pub mod net;
pub mod own_user;
pub mod plain;
pub mod readiness;
pub mod reload;
pub mod service;
pub mod telemetry;
pub mod tls;
mod url;

#[cfg(test)]
mod tests;
