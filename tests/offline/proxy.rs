//! A running proxy whose broker does not answer, and its log, line by line.

use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use super::running::{self, Running};

/// For so long a test waits for what must come.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A running proxy.
pub(super) struct Proxy {
    running: Running,
    log: PathBuf,
    /// Lines of the log that were asked for, or passed over.
    seen: usize,
}

/// Asks until the answer is there, or patience ends.
pub(super) fn until<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if answer.is_some() || Instant::now() > end {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

// === impl Proxy ===

impl Proxy {
    pub(super) fn start(command: &mut Command) -> Proxy {
        let log = format!("dlx-proxy-{:x}.log", fastrand::u64(..));
        let log = std::env::temp_dir().join(log);
        Proxy {
            running: Running::start(command, &log).expect("the program starts"),
            log,
            seen: 0,
        }
    }

    /// The next line of the log with these words in it.
    pub(super) fn line(&mut self, words: &str) -> String {
        let found = until(|| {
            let mut lines = self.log().into_iter().skip(self.seen);
            lines.find(|line| {
                self.seen += 1;
                line.contains(words)
            })
        });
        found.expect(words)
    }

    pub(super) fn signal(&self, name: &str) {
        self.running.signal(name).expect("it runs");
    }

    /// Waits until it has ended.
    pub(super) fn ended(&mut self) -> ExitStatus {
        let ended = until(|| self.running.child.try_wait().expect("our child"));
        ended.expect("it ends")
    }

    /// All lines so far.
    pub(super) fn log(&self) -> Vec<String> {
        running::lines(&self.log, &[])
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.log);
    }
}
