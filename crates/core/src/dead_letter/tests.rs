//! Rule tables (`testdata/*.txt`) and properties of dead letters.

mod anything;
mod asked;
pub(crate) mod away;
mod broker;
mod bytes;
pub(crate) mod journey;
mod message;
mod rendered;
pub(crate) mod script;
mod there_and_back;
mod walk;
