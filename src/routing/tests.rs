//! Where targets lead, by tables.

pub(crate) mod model;
mod table;
