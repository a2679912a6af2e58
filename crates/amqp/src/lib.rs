//! AMQP 0-9-1 as bytes: frames, methods, contents and field tables are *views* into buffers; an edited one is another type.
//!
//! Nothing here knows a rule of dead-lettering. Source: the AMQP 0-9-1 specification and RabbitMQ's extensions and errata.

#![cfg_attr(
    not(test),
    deny(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::disallowed_macros
    )
)]

pub mod content;
pub mod cursor;
pub mod frame;
pub mod ids;
pub mod incoming;
pub mod method;
pub mod properties;
pub mod reply;
pub mod reply_code;
pub mod table;
pub mod version;

/// RabbitMQ's consumer argument for the start offset in a stream, and the header with a message's
/// offset.
pub const STREAM_OFFSET: &[u8] = b"x-stream-offset";
/// RabbitMQ's consumer argument for the time that a message may stay unacked, in milliseconds.
/// Quorum queues, from 4.3 on.
pub const CONSUMER_TIMEOUT: &[u8] = b"x-consumer-timeout";

#[cfg(test)]
mod tests;
