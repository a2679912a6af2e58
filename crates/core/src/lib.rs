//! The pure core of dlx-proxy: no sockets, clocks, tasks, locks, files or randomness, and no logging. Each room uses those above it.
//!
//! - [`amqp`]: frames, methods, contents and tables as views on bytes
//! - [`machine`]: the whole contract with the shell
//! - [`dead_letter`]: what becomes of a message that died, by RabbitMQ's rules
//! - [`objects`]: the exchanges and queues of the proxy's own, and their names
//! - [`registry`]: queue arguments, policies, the broker's refusals
//! - [`session`]: one client connection and its broker connection
//! - [`link`]: a broker connection of the proxy's own; [`publisher`], [`intake`], [`recorder`], [`pulse`], [`walk`] and [`import`] are built on
//!   one
//! - [`mover`]: one channel that takes the messages of a queue, as [`intake`] and [`walk`] do
//! - [`letter`]: a dead letter as people read it: filters, groups, its story
//!
//! Its `Cargo.toml` names the crates it may use. `crates/clippy.toml` lists what it may not use of the standard library, and
//! `tests/offline/walls.rs` has the order of the rooms.

#![cfg_attr(
    not(test),
    deny(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::disallowed_macros
    )
)]

pub use dlx_amqp as amqp;

pub mod alteration;
pub mod dead_letter;
pub mod import;
pub mod intake;
pub mod letter;
pub mod link;
pub mod machine;
pub mod mover;
pub mod objects;
pub mod publisher;
pub mod pulse;
pub mod recorder;
pub mod registry;
pub mod session;
#[cfg(test)]
mod tables;
pub mod walk;
