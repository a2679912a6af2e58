//! The reply codes of a `close` that this program says, or reads. Source: AMQP 0-9-1, section 1.2.

/// No error: the connection ends in order.
pub const REPLY_SUCCESS: u16 = 200;
/// An operator, or the end of a process, closes the connection.
pub const CONNECTION_FORCED: u16 = 320;
/// The user may not do that.
pub const ACCESS_REFUSED: u16 = 403;
/// There is no such queue or exchange.
pub const NOT_FOUND: u16 = 404;
/// It is another connection's alone.
pub const RESOURCE_LOCKED: u16 = 405;
/// What is there does not fit what was asked for.
pub const PRECONDITION_FAILED: u16 = 406;
/// The broker could not do what was asked.
pub const INTERNAL_ERROR: u16 = 541;
/// That is forbidden, whoever asks.
pub const NOT_ALLOWED: u16 = 530;
