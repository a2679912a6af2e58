//! The program itself, as a process with its log in a file.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running `dlx-proxy`; it is killed if a test forgets it.
pub(crate) struct Running {
    pub child: Child,
}

/// `dlx-proxy` without the settings that our own environment may have.
pub(crate) fn dlx_proxy() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlx-proxy"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DLX_PROXY_") {
            command.env_remove(name);
        }
    }
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// Sends a signal, as `kill -s` does.
pub(crate) fn signal(process: u32, name: &str) -> Result<(), String> {
    let process = process.to_string();
    let sent = Command::new("kill").args(["-s", name, &process]).status();
    match sent {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("kill -s {name} {process}: {other:?}")),
    }
}

/// Lines of a log that contain all of these, as far as it is written: what was done a moment ago may come yet.
pub(crate) fn lines(log: &Path, words: &[&str]) -> Vec<String> {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
    let fits = |line: &&str| words.iter().all(|word| line.contains(word));
    whole.lines().filter(fits).map(str::to_owned).collect()
}

// === impl Running ===

impl Running {
    /// Its log is appended to that file.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Running, String> {
        let file = File::options().create(true).append(true).open(log);
        let file = file.map_err(|error| format!("{log:?}: {error}"))?;
        let child = command.stdout(Stdio::null()).stderr(file).spawn();
        let child = child.map_err(|error| error.to_string())?;
        Ok(Running { child })
    }

    pub(crate) fn signal(&self, name: &str) -> Result<(), String> {
        signal(self.child.id(), name)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both do nothing to a process that has ended already, and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
