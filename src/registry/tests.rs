//! Rule tables (`testdata/*.txt`) and properties of the registry.

mod property;
mod registry;
mod retries;
mod shared;
mod table;
mod words;
