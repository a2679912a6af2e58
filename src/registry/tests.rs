//! Rule tables (`testdata/*.txt`) and properties of the registry.

mod property;
mod redeclared;
mod registry;
mod retries;
mod shared;
mod table;
mod words;
