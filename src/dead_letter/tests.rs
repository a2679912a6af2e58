//! Rule tables (`testdata/*.txt`) and properties of dead letters.

mod broker;
mod bytes;
mod message;
mod property;
mod script;
mod table;
