//! The reply codes of a `close` that this program says, or reads. Source: AMQP 0-9-1, section 1.2.

pub const REPLY_SUCCESS: u16 = 200;
pub const CONNECTION_FORCED: u16 = 320;
pub const ACCESS_REFUSED: u16 = 403;
pub const NOT_FOUND: u16 = 404;
/// The queue is exclusive to another connection.
pub const RESOURCE_LOCKED: u16 = 405;
pub const PRECONDITION_FAILED: u16 = 406;
pub const INTERNAL_ERROR: u16 = 541;
pub const NOT_ALLOWED: u16 = 530;
pub const NOT_IMPLEMENTED: u16 = 540;
