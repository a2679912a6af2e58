//! Where messages go, by tables, and beside an obvious model of what a broker does.

mod bounds;
pub(crate) mod model;
pub(crate) mod property;
mod table;
