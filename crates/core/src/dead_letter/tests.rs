//! Rule tables (`testdata/*.txt`) and properties of dead letters.

mod anything;
mod away;
mod broker;
mod bytes;
mod cycles;
mod message;
mod property;
mod redrive;
mod redriven;
mod rejected_by;
mod rendered;
mod retried;
mod retry;
mod returning;
mod script;
mod signalled;
mod table;
mod unparked;
