//! The program itself, as a user starts it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::lab::until;
use super::proxy::Admin;

/// A running `dlx-proxy`; it is killed if a test forgets it.
pub(crate) struct Program {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    /// Reads the log, up to its end.
    reader: Option<JoinHandle<()>>,
    pub address: SocketAddr,
    pub admin: Admin,
}

// === impl Program ===

impl Program {
    /// Starts it on free ports and waits for the lines that say which.
    pub(crate) async fn start(upstream: &str, vhosts: &str) -> Program {
        Program::start_with(upstream, vhosts, &[]).await
    }

    /// The same with these variables in its environment: `DLX_PROXY_CLOSE_WAIT`, ….
    pub(crate) async fn start_with(
        upstream: &str,
        vhosts: &str,
        environment: &[(&str, &str)],
    ) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dlx-proxy"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("DLX_PROXY_") {
                command.env_remove(name);
            }
        }
        command
            .args([
                "run",
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--upstream",
                upstream,
            ])
            .env("DLX_PROXY_VHOSTS", vhosts)
            .env("NO_COLOR", "1")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = log.clone();
        let reader = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                lock(&lines).push(line);
            }
        });
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut program = Program {
            child,
            log,
            reader: Some(reader),
            address: nowhere,
            admin: Admin(nowhere),
        };
        program.address = program.bound("client").await;
        program.admin = Admin(program.bound("admin").await);
        program
    }

    /// The address in the line that says `listening leg="..." addr=...`.
    async fn bound(&self, leg: &str) -> SocketAddr {
        let leg = format!("leg=\"{leg}\"");
        let find = || {
            let lines = self.lines(&["listening", &leg]);
            lines
                .first()
                .and_then(|line| line.split("addr=").nth(1)?.trim().parse().ok())
        };
        until(format_args!("a listening line with {leg}"), async || {
            find().is_some()
        })
        .await;
        find().expect("found just now")
    }

    /// Lines of its log that contain all of these, as far as it is read: what was written a moment ago may come yet.
    pub(crate) fn lines(&self, words: &[&str]) -> Vec<String> {
        let fits = |line: &&String| words.iter().all(|word| line.contains(word));
        lock(&self.log).iter().filter(fits).cloned().collect()
    }

    /// Waits until there are so many such lines.
    pub(crate) async fn has_lines(&self, number: usize, words: &[&str]) {
        until(format_args!("{number} lines with {words:?}"), async || {
            self.lines(words).len() == number
        })
        .await;
    }

    /// Its resident memory, in KiB. It may become less.
    pub(crate) fn resident(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("VmRSS");
        line.trim()
            .trim_end_matches(" kB")
            .parse()
            .expect("a number")
    }

    /// How many files and sockets it has open.
    pub(crate) fn files(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        open.expect("it runs").count()
    }

    pub(crate) fn signal(&self, name: &str) {
        let process = self.child.id().to_string();
        let killed = Command::new("kill").args(["-s", name, &process]).status();
        assert!(killed.expect("kill runs").success());
    }

    /// Waits until it has ended by itself, and its log is read to the end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut ended = None;
        until("the program ends", async || {
            ended = self.child.try_wait().expect("our child");
            ended.is_some()
        })
        .await;
        if let Some(reader) = self.reader.take() {
            reader.join().expect("no panic");
        }
        ended.expect("it ended")
    }

    /// SIGTERM, and an orderly end.
    pub(crate) async fn stop(mut self) {
        self.signal("TERM");
        let status = self.ended().await;
        assert!(
            status.success(),
            "{status}; its log: {:#?}",
            self.lines(&[])
        );
        assert_eq!(self.lines(&["panicked"]), [""; 0]);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
