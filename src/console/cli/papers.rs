//! What packages bring along, made from the command line itself: manual pages, and completions for shells.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use super::Cli;

pub fn completions(shell: Shell, out: &mut impl Write) -> io::Result<()> {
    let mut script = Vec::new(); // the generator panics where it cannot write
    clap_complete::generate(
        shell,
        &mut <Cli as CommandFactory>::command(),
        "dlx-proxy",
        &mut script,
    );
    out.write_all(&script)
}

pub fn page(out: &mut impl Write) -> io::Result<()> {
    Man::new(<Cli as CommandFactory>::command()).render(out)
}

/// One manual page for the program, and one for each command.
///
/// # Errors
/// A page cannot be written.
pub fn pages(folder: &Path) -> io::Result<()> {
    clap_mangen::generate_to(<Cli as CommandFactory>::command(), folder)
}
