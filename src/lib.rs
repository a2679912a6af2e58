//! dlx-proxy.

pub mod amqp;
pub mod dead_letter;
pub mod machine;
pub mod net;
pub mod registry;
pub mod session;
