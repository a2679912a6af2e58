//! AMQP 0-9-1 as the tests read and write it: values, methods, contents. Nothing of `crates/amqp`: a judge must not share the defects of the
//! judged. Used by each test binary that speaks AMQP by itself, and none of them uses all of it.
#![allow(dead_code)]

pub(crate) mod frame;
pub(crate) mod methods;
pub(crate) mod notation;
pub(crate) mod value;
pub(crate) mod wire;
