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

/// The argument by which a consumer of a stream says where to begin, and the header that says where what it gets stands (RabbitMQ's).
pub const STREAM_OFFSET: &[u8] = b"x-stream-offset";
/// The argument by which a consumer of a quorum queue says how long it may hold a message, in milliseconds, from 4.3 on.
pub const CONSUMER_TIMEOUT: &[u8] = b"x-consumer-timeout";

#[cfg(test)]
mod tests;
