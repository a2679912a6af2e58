//! A small RabbitMQ 4.3 as one plain value: no sockets, no clock, no threads; time is an argument and what the real one does later is a list
//! of jobs that the caller runs in any order that the real one could have. The differential tests hold it to the real broker.
//!
//! One vhost, one node. Of RabbitMQ it has: the handshake, both ways to close, direct, fanout, topic and headers exchanges, classic and quorum
//! queues, streams, confirms and returns, consumers, their priorities and prefetch, settling, TTL, lengths, delivery limits, dead letters and their headers, alarms,
//! permissions, restarts, transactions that are rolled back. What it has not answers 540 NOT_IMPLEMENTED: other transactions.
//! `at-least-once` acts as at-most-once: what routes nowhere, or goes round, is dropped instead of kept.
//!
//! - `broker` what a caller sees · `operator` what people and disasters do to it · `policies` what people set · `facts` what happened · `views` how it stands
//! - `connection` handshake and closes · `reader` frames · `channel` contents, dispatch, end of a channel
//! - `declaring`, `binding`, `publishing`, `transaction`, `consuming`, `settling` the methods · `timeout` of a consumer · `arguments` of queues, their checks
//! - `exchange`, `queue`, `stream`, `message`, `death` what there is · `jobs` what is still to be done · `dead_letter` how messages die
//! - `refusal` the words of a no · `call` a method's fields
#![allow(dead_code)] // Two test binaries use it, and neither all of it.

mod arguments;
mod binding;
mod broker;
mod call;
mod channel;
mod connection;
mod consuming;
mod dead_letter;
mod death;
mod declaring;
mod exchange;
mod facts;
mod jobs;
mod message;
mod operator;
mod policies;
mod publishing;
mod queue;
mod reader;
mod refusal;
mod sasl;
mod settling;
mod stream;
mod timeout;
mod transaction;
mod views;

#[allow(unused_imports)]
pub(crate) use self::{
    broker::{Broker, Conn, Millis, Options, Rights, User},
    exchange::Type as ExchangeType,
    exchange::Type,
    facts::{Fact, How, Reason, Why},
    policies::{Policy, QueueView},
    timeout::TimeoutResponse,
    views::{BindingView, ConsumerView, ExchangeView, Holder, MessageView},
};
