//! Rule tables (`testdata/*.txt`) and properties of dead letters.

mod broker;
mod bytes;
mod cycles;
mod message;
mod property;
mod script;
mod table;
