//! Rule tables (`testdata/*.txt`) and properties of the registry.

mod adoption;
mod brokers;
mod channel_limits;
mod handling;
mod property;
mod registry;
mod shown;
mod table;
mod words;
