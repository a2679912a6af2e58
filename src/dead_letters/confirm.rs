//! A question to whoever sits at the terminal.

use std::ffi::OsStr;
use std::io::{self, BufRead, IsTerminal, Write};

use super::words;
use crate::cli::Printing;

/// Whether somebody can be asked, and see the question.
pub(super) fn can_ask(printing: &Printing) -> bool {
    !printing.non_interactive && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Whether the answer is a yes.
///
/// # Errors
/// When the terminal is gone.
pub(super) fn ask(meant: &str, queue: &OsStr, to: Option<&str>) -> io::Result<bool> {
    let mut terminal = io::stderr();
    terminal.write_all(words::question(meant, queue, to).as_bytes())?;
    terminal.flush()?;
    let mut answer = Vec::new();
    io::stdin().lock().read_until(b'\n', &mut answer)?;
    Ok(words::is_yes(&answer, queue, to))
}
