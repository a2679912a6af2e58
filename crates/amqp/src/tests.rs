//! Views and edits of bytes: what they read, what they keep, and that no bytes break them.

mod content;
mod frame;
mod incoming;
mod properties;
mod table;
