//! dlx-proxy.

pub mod admin;
pub mod amqp;
pub mod cli;
pub mod config;
pub mod dead_letter;
pub mod demo;
pub mod drain;
pub mod machine;
pub mod net;
pub mod registry;
pub mod session;
pub mod telemetry;
