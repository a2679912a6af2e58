//! Rule tables (`testdata/*.txt`) and properties of dead letters.

mod anything;
mod away;
mod broker;
mod bytes;
mod journey;
pub(crate) mod message;
mod rendered;
mod retried;
mod script;
mod there_and_back;
mod walk;
