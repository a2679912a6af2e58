//! dlx-proxy.

pub mod amqp;
pub mod dead_letter;
pub mod machine;
