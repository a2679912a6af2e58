//! dlx-proxy.

pub mod amqp;
pub mod cli;
pub mod config;
pub mod dead_letter;
pub mod drain;
pub mod intake;
pub mod link;
pub mod machine;
pub mod publisher;
pub mod registry;
pub mod session;
